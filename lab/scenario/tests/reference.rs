// SPDX-License-Identifier: MIT OR Apache-2.0
//! docs/scenario-keys.md is made from the declarations of the keys, and scenarios/README.md shows
//! scenarios and profiles that are right. `make scenario-keys` renews the former.

use std::path::{Path, PathBuf};
use unspin_scenario::{parse_profile, parse_scenario, reference};

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn the_reference_is_made_from_the_declarations() {
    let path = file("docs/scenario-keys.md");
    if std::env::var_os("UNSPIN_BLESS").is_some() {
        std::fs::write(&path, reference()).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap();
    assert!(known == reference(), "docs/scenario-keys.md is not current: make scenario-keys");
}

#[test]
fn the_examples_are_right() {
    let text = std::fs::read_to_string(file("scenarios/README.md")).unwrap();
    let examples: Vec<&str> =
        text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let (profiles, scenarios): (Vec<&str>, Vec<&str>) =
        examples.into_iter().partition(|text| text.starts_with("name ="));
    assert_eq!((profiles.len(), scenarios.len()), (1, 3));
    for example in scenarios {
        parse_scenario("README.md", "example", example).unwrap_or_else(|e| panic!("{e}"));
    }
    parse_profile("README.md", "example", profiles[0]).unwrap_or_else(|e| panic!("{e}"));
}
