// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios that the release's seed draws, a few of them measured: whether the simulator's bands have
//! what comes out. UNSPIN_HELD_OUT says how many; each takes minutes.

mod common;

use common::made;
use std::path::{Path, PathBuf};

/// The least of the bands that must cover. 85 % are aimed at: of six arms fewer than half would be chance
/// once in 150 tests.
const COVERED: f64 = 0.5;

#[test]
fn bands_have_what_a_few_scenarios_of_the_release_come_to() {
    let Ok(count) = std::env::var("UNSPIN_HELD_OUT") else {
        println!("SKIPPED: held-out scenarios: UNSPIN_HELD_OUT=3 measures three of them");
        return;
    };
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("held-out");
    let _ = std::fs::remove_dir_all(&dir);
    let in_dir = |name: &str| dir.join(name).to_str().unwrap().to_string();
    let (scenarios, measured) = (in_dir("scenarios"), in_dir("measured"));
    made(&["generate", "spaces/held-out.toml", "--count", &count, "--out", &scenarios]);
    let files = std::fs::read_dir(&scenarios).unwrap();
    let files: Vec<String> =
        files.map(|f| f.unwrap().path().to_str().unwrap().to_string()).collect();
    let mut bench = vec!["bench", "--machine", "emulated", "--quiet", "--out", &measured];
    bench.extend(files.iter().map(String::as_str));
    made(&bench);
    let mut agree = vec!["agree", "--worlds", "64", "--json"];
    let results = |file: &String| {
        let name = Path::new(file).file_stem().unwrap().to_str().unwrap().to_string();
        // Of one scenario the results stand in the directory itself.
        let own = Path::new(&measured).join(&name);
        if own.is_dir() { own } else { PathBuf::from(&measured) }.to_str().unwrap().to_string()
    };
    let results: Vec<String> = files.iter().map(results).collect();
    agree.extend(results.iter().flat_map(|dir| ["--held-out", dir.as_str()]));
    let said: serde_json::Value = serde_json::from_slice(&made(&agree).stdout).unwrap();
    let scores = &said["held_out"];
    println!("{scores:#}");
    assert_eq!(scores["arms"].as_u64(), count.parse::<u64>().ok().map(|n| 2 * n));
    assert!(scores["coverage_90"].as_f64().unwrap() >= COVERED, "{said}");
}
