// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin shape` on stock kernels under QEMU: a VM's weights, nice values, slices and
//! CPUs are set, and put back, however it ends, and where a CPU goes. tests/shape.sh is what runs inside.
//!
//! `UNSPIN_KERNELS`, `UNSPIN_LAB_DIR`. The command is taken from where this test is built.

mod common;

use serde_json::Value;
use unspin_lab::Series;

/// Checks of the script; fewer were made if it ended early.
const CHECKS_MIN: u32 = 23;

#[test]
fn shaping_under_qemu() {
    let judged = |lines: &[String]| judged(lines).err().into_iter().collect();
    common::command_under_qemu("shape", &Series::ALL, include_str!("shape.sh"), CHECKS_MIN, judged);
}

/// The vCPU that has a CPU to itself uses more than the one that shares it.
fn judged(lines: &[String]) -> Result<(), String> {
    let text = lines.iter().find_map(|line| line.strip_prefix("shape ")).ok_or("no dry run")?;
    let document: Value = serde_json::from_str(text).map_err(|_| text.to_string())?;
    let weights: Vec<u64> = (document["decisions"].as_array().ok_or("no decisions")?.iter())
        .filter_map(|decision| decision["weight"]["then"].as_u64())
        .collect();
    match weights[..] {
        [first, second] if first.abs_diff(second) >= 20 => Ok(()),
        _ => Err(text.to_string()),
    }
}

#[test]
fn a_wrong_result_is_seen() {
    let line = |first: u64| {
        let of = |then| format!(r#"{{"weight":{{"then":{then}}}}}"#);
        vec![format!(r#"shape {{"decisions":[{},{}]}}"#, of(first), of(100))]
    };
    assert_eq!(judged(&line(150)), Ok(()));
    assert!(judged(&line(110)).is_err() && judged(&["shape unspin: no".into()]).is_err());
    assert!(judged(&[]).is_err());
}
