// SPDX-License-Identifier: MIT OR Apache-2.0
//! What watching costs a vCPU, in instructions, on stock KVM under Bochs. tests/watching.sh runs
//! inside. unspin-watch must be built beside this test.

mod common;

use unspin_computers::{Computer, Series, BOCHS_TOOLS};

/// The least number of checks: a script that ends early makes fewer.
const CHECKS_MIN: u32 = 24;
/// The most instructions that watching may add to an exit with its re-entry, and to a vCPU switch:
/// a little above the measured 477 and 987. The goal of 400 is not reached
/// (docs/diagnose-reference.md).
const EXIT_MAX: f64 = 500.0;
const SWITCH_MAX: f64 = 1030.0;

#[test]
fn watching_costs_little() {
    let Some(watcher) = common::built("unspin-watch", "cost of watching") else { return };
    let script = format!("{}\n{}", include_str!("costs.sh"), include_str!("watching.sh"));
    let extras = common::Extras { programs: vec![watcher], ..common::NO_EXTRAS };
    common::on_kernels(BOCHS_TOOLS, &[Series::V6_12], |lab, kernel| {
        let computer = Computer::bochs(1);
        let heard =
            common::script_with(lab, kernel, &computer, &script, "watching", extras.clone());
        let wrong = common::verdict(kernel.series, &heard, CHECKS_MIN, &heard.console);
        if wrong.is_empty() {
            let [exit, switch] = added(&heard.lines);
            common::say(&format!("watching adds {exit} instructions an exit, {switch} a switch"));
            assert!(exit <= EXIT_MAX && switch <= SWITCH_MAX, "{exit} and {switch}");
        }
        wrong
    });
}

/// Instructions that an exit and a switch take more, of the script's line.
fn added(lines: &[String]) -> [f64; 2] {
    let of = |line: &String| -> Option<[f64; 2]> {
        let rest = line.strip_prefix("watching adds, hundredths of an instruction: ")?;
        let (exit, switch) = rest.strip_suffix(" a switch")?.split_once(" an exit, ")?;
        Some([exit.parse::<f64>().ok()? / 100.0, switch.parse::<f64>().ok()? / 100.0])
    };
    lines.iter().find_map(of).expect("the script says what watching adds")
}

#[test]
fn the_line_is_read() {
    let line = "watching adds, hundredths of an instruction: 31250 an exit, 40001 a switch";
    assert_eq!(added(&["ok a check".into(), line.into()]), [312.5, 400.01]);
}
