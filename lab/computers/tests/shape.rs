// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin shape` on stock kernels under QEMU: a VM's weights, nice values, slices and
//! CPUs are set, and put back, however it ends, and where a CPU goes. tests/shape.sh is what runs inside.

mod common;

use serde_json::Value;
use unspin_computers::Series;

#[test]
fn shaping_under_qemu() {
    let judged = |lines: &[String]| judged(lines).err().into_iter().collect();
    common::command_under_qemu("shape", &Series::ALL, include_str!("shape.sh"), 23, judged);
}

/// The vCPU that has a CPU to itself uses more than the one that shares it, so that its next part is larger.
/// Both are runnable at the end, so they need alike, and keep equal weights.
fn judged(lines: &[String]) -> Result<(), String> {
    let text = lines.iter().find_map(|line| line.strip_prefix("shape ")).ok_or("no dry run")?;
    let document: Value = serde_json::from_str(text).map_err(|_| text.to_string())?;
    let decisions = document["decisions"].as_array().ok_or("no decisions")?;
    let weights: Vec<u64> =
        decisions.iter().filter_map(|of| of["weight"]["then"].as_u64()).collect();
    let parts_ms: Vec<f64> =
        decisions.iter().filter_map(|of| next_ms(of["why"].as_str()?)).collect();
    match (&weights[..], &parts_ms[..]) {
        ([one, other], [first, second]) if one == other && second - first >= 5.0 => Ok(()),
        _ => Err(text.to_string()),
    }
}

fn next_ms(why: &str) -> Option<f64> {
    why.split("; next ").nth(1)?.split(' ').next()?.parse().ok()
}

#[test]
fn a_wrong_result_is_seen() {
    let line = |weight: u64, second_ms: f64| {
        let of = |then: u64, ms: f64| {
            format!(r#"{{"weight":{{"then":{then}}},"why":"; next {ms} ms"}}"#)
        };
        vec![format!(r#"shape {{"decisions":[{},{}]}}"#, of(100, 45.0), of(weight, second_ms))]
    };
    assert_eq!(judged(&line(100, 65.0)), Ok(()));
    assert!(judged(&line(100, 46.0)).is_err() && judged(&line(100, 25.0)).is_err());
    assert!(judged(&line(150, 65.0)).is_err() && judged(&["shape unspin: no".into()]).is_err());
    assert!(judged(&[]).is_err());
}
