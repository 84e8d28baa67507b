// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin diagnose --ab` on stock kernels under QEMU: KVM's polling and vCPUs' CPUs are switched and put
//! back. tests/ab.sh is what runs inside.

mod common;

use serde_json::Value;
use unspin_computers::Series;

#[test]
fn experiments_under_qemu() {
    let judged = |lines: &[String]| {
        let of = |cause| judged(lines, cause).err().map(|what| format!("{cause}: {what}"));
        ["idle-switch", "cache"].into_iter().filter_map(of).collect()
    };
    common::command_under_qemu("ab", &Series::ALL, include_str!("ab.sh"), 12, judged);
}

/// An experiment has a result, of two rounds.
fn judged(lines: &[String], cause: &str) -> Result<(), String> {
    let prefix = format!("ab {cause} ");
    let text = lines.iter().find_map(|line| line.strip_prefix(&prefix)).ok_or("no result")?;
    let document: Value = serde_json::from_str(text).map_err(|_| text.to_string())?;
    let ab = &document["ab"];
    common::say(&format!("{cause}: {} / {}: {}", ab["a"], ab["b"], ab["states"]));
    let states = ab["states"].as_array().ok_or("no states")?;
    let halts = states.iter().any(|state| state["of"] == "halted");
    match ab["order"] == "ABBA" && ab["cause"] == cause && (halts || cause == "cache") {
        true => Ok(()),
        false => Err(text.to_string()),
    }
}

#[test]
fn a_wrong_result_is_seen() {
    let line = |text: &str| vec![format!("ab cache {text}")];
    let right = r#"{"ab":{"cause":"cache","order":"ABBA","states":[]}}"#;
    assert_eq!(judged(&line(right), "cache"), Ok(()));
    for wrong in ["unspin: no", &right.replace("ABBA", "AB"), &right.replace("[]", "null")] {
        assert!(judged(&line(wrong), "cache").is_err(), "{wrong}");
    }
    assert!(judged(&line(right), "idle-switch").is_err());
}
