// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tells scenarios and plans apart.

use crate::plan::Plan;
use crate::schema::keys::profile::CALIBRATION;
use crate::schema::program::Profile;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// SHA-256 over what the scenario and its workloads ask for, each with its name and length.
/// Comments do not count, nor do the calibration records of profiles.
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

/// What a file asks for: its keys and values, sorted. Text that is not TOML counts as it is.
fn asked(text: &str) -> String {
    let Ok(mut keys) = text.parse::<toml::Table>() else { return text.to_string() };
    keys.remove(CALIBRATION.name);
    serde_json::to_string(&keys).unwrap_or_else(|_| text.to_string())
}

/// SHA-256 of anything that has a JSON form; all that is planned has one.
pub fn fingerprint(of: &impl Serialize) -> String {
    hex(&Sha256::digest(serde_json::to_vec(of).unwrap_or_default()))
}

impl Plan {
    /// Two plans with the same one ask for the same runs.
    pub fn fingerprint(&self) -> String {
        fingerprint(self)
    }
}

impl Profile {
    /// Two profiles with the same one are the same program, whatever they are called and however they
    /// came to be.
    pub fn fingerprint(&self) -> String {
        fingerprint(&(self.spin_intensive, &self.program))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
