// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module on an emulated VT-x computer of three CPUs: function only, no figure is taken. What runs
//! inside is tests/vmx.sh: windows read back after `off` and after unloading, nested guests, windows
//! that are not where they were thought, unloading under running VMs.

mod common;

use serde_json::Value;
use unspin_computers::{Computer, Series, BOCHS_TOOLS};

/// The least number of checks: a script that ends early makes fewer.
const CHECKS_MIN: u32 = 50;

#[test]
fn the_module_on_vt_x() {
    let command: Vec<_> = common::built("unspin", "--ab spin-switch").into_iter().collect();
    common::on_kernels(BOCHS_TOOLS, &[Series::V6_12, Series::V6_1], |lab, kernel| {
        let name = format!("vmx-{}", kernel.series.name());
        let script = include_str!("vmx.sh");
        let extras = common::Extras { programs: command.clone(), ..common::NO_EXTRAS };
        let computer = Computer::bochs(3);
        let heard = common::script_with(lab, kernel, &computer, script, &name, extras);
        let mut wrong = common::verdict(kernel.series, &heard, CHECKS_MIN, &heard.console);
        if let Err(what) = fewer_exits(&heard.lines, !command.is_empty()) {
            wrong.push(format!("{name}: --ab spin-switch: {what}"));
        }
        wrong
    });
}

/// What an experiment found: in B hardly any time goes into pause-loop exits.
fn fewer_exits(lines: &[String], is_asked: bool) -> Result<(), String> {
    if !is_asked {
        return Ok(());
    }
    let text = lines.iter().find_map(|line| line.strip_prefix("ab spin-switch "));
    let text = text.ok_or("no result")?;
    let document: Value = serde_json::from_str(text).map_err(|_| text.to_string())?;
    let states = document["ab"]["states"].as_array().ok_or(text)?;
    let pause = states.iter().find(|state| state["of"] == "exit:pause").ok_or(text)?;
    common::say(&format!("--ab spin-switch: exit:pause {} in A, {} in B", pause["a"], pause["b"]));
    match (pause["a"].as_f64(), pause["b"].as_f64()) {
        (Some(a), Some(b)) if a > 0.0 && b <= a / 10.0 => Ok(()),
        _ => Err(text.to_string()),
    }
}

#[test]
fn a_window_that_stays_is_seen() {
    let line = |b: f64| {
        let pause = serde_json::json!({"of": "exit:pause", "a": 0.2, "b": b});
        vec![format!("ab spin-switch {}", serde_json::json!({"ab": {"states": [pause]}}))]
    };
    assert_eq!(fewer_exits(&line(0.001), true), Ok(()));
    assert!(fewer_exits(&line(0.19), true).is_err() && fewer_exits(&[], true).is_err());
}
