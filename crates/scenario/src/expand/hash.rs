// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tells scenarios and plans apart.

use crate::plan::Plan;
use crate::schema::program::Profile;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// SHA-256 over the scenario and its profiles, each with its name and length.
pub(crate) fn hash(text: &str, profiles: &BTreeMap<&str, &(Profile, String)>) -> String {
    let mut h = Sha256::new();
    let mut add = |name: &str, text: &str| {
        h.update(format!("{name} {}\n", text.len()));
        h.update(text);
    };
    add("scenario", text);
    for (name, (_, text)) in profiles {
        add(name, text);
    }
    hex(&h.finalize())
}

impl Plan {
    /// SHA-256 of the plan: two plans with the same one ask for the same runs.
    pub fn fingerprint(&self) -> String {
        // A plan has string keys and integers only: it always has a JSON form.
        hex(&Sha256::digest(serde_json::to_vec(self).unwrap_or_default()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
