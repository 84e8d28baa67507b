// SPDX-License-Identifier: MIT OR Apache-2.0
//! The profiles are the ones that were calibrated, and spin as the paper's rule wants.

use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Calibrated {
    sha256: String,
    inefficiency_at_512_permille: u32,
}

/// APPLES (TPDS 2017) 4.2: spin-intensive is over 5 % at a fixed window of 512 cycles.
#[test]
fn profiles_are_as_calibrated_and_spin_intensive() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/calibration.json")).unwrap();
    let calibrated: BTreeMap<String, Calibrated> = serde_json::from_str(&text).unwrap();
    assert_eq!(calibrated.len(), 7, "the paper's seven profiles");
    for (name, of) in calibrated {
        let profile = std::fs::read(root.join("profiles").join(format!("{name}.toml"))).unwrap();
        let hash: String = Sha256::digest(&profile).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hash, of.sha256,
            "{name} changed: sweep it again (scenarios/calibration.toml) and record it in docs"
        );
        assert!(of.inefficiency_at_512_permille > 50, "{name} is not spin-intensive");
    }
}
