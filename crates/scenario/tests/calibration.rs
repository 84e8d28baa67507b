// SPDX-License-Identifier: MIT OR Apache-2.0
//! The profiles are the ones that were calibrated, and spin as the paper's rule wants.

use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    sha256: String,
    #[allow(dead_code)] // for people
    date: String,
    entries: Vec<String>,
    how: String,
}

#[derive(Deserialize)]
struct Targets {
    claim: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    id: String,
    kind: String,
}

fn stems(dir: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path());
    let toml = files.filter(|p| p.extension().is_some_and(|x| x == "toml"));
    toml.map(|p| p.file_stem().unwrap().to_string_lossy().into_owned()).collect()
}

/// A profile of a paper's machine is what its record says, and was fitted, if at all, to entries
/// that may be fitted to.
#[test]
fn profiles_of_the_papers_have_their_records() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let targets = std::fs::read_to_string(root.join("figures/targets.toml")).unwrap();
    let targets: Targets = toml::from_str(&targets).unwrap();
    for dir in ["profiles/paper", "profiles/model/paper"].map(|dir| root.join(dir)) {
        let names = stems(&dir);
        assert_eq!(names, stems(&dir.join("calibration")), "profiles and records");
        for name in names {
            let record = dir.join(format!("calibration/{name}.toml"));
            let record: Record = toml::from_str(&std::fs::read_to_string(record).unwrap()).unwrap();
            let profile = std::fs::read(dir.join(format!("{name}.toml"))).unwrap();
            let hash: String =
                Sha256::digest(&profile).iter().map(|b| format!("{b:02x}")).collect();
            let dir = dir.display();
            assert_eq!(hash, record.sha256, "{dir}/{name} changed without its calibration record");
            assert!(!record.how.is_empty());
            for id in record.entries {
                let target = targets.claim.iter().find(|t| t.id == id);
                let kind = target.map(|t| t.kind.as_str());
                assert_eq!(kind, Some("calibrate"), "{name} was fitted to {id}");
            }
        }
    }
}
