// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hashes that identify scenarios and plans.

use crate::plan::Plan;
use crate::schema::keys::profile::CALIBRATION;
use crate::schema::program::Profile;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// SHA-256 over the contents of the scenario and its workloads, each with its name and length.
/// Comments do not count, and neither do the calibration records of profiles.
pub(crate) fn hash(text: &str, workloads: &[(String, &str)]) -> String {
    let mut h = Sha256::new();
    let mut add = |name: &str, text: &str| {
        let asked = asked(text);
        h.update(format!("{name} {}\n", asked.len()));
        h.update(asked);
    };
    add("scenario", text);
    for (name, text) in workloads {
        add(name, text);
    }
    hex(&h.finalize())
}

/// The contents of a file: its keys and values, sorted. Text that is not TOML counts unchanged.
fn asked(text: &str) -> String {
    let Ok(mut keys) = text.parse::<toml::Table>() else { return text.to_string() };
    keys.remove(CALIBRATION.name);
    serde_json::to_string(&keys).unwrap_or_else(|_| text.to_string())
}

/// SHA-256 of a value's JSON form.
pub fn fingerprint(of: &impl Serialize) -> String {
    hex(&Sha256::digest(serde_json::to_vec(of).unwrap_or_default()))
}

impl Plan {
    /// Plans with equal fingerprints request the same runs.
    pub fn fingerprint(&self) -> String {
        fingerprint(self)
    }
}

impl Profile {
    /// Profiles with equal fingerprints are the same program, whatever their names and records.
    pub fn fingerprint(&self) -> String {
        fingerprint(&(self.spin_intensive, &self.program))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
