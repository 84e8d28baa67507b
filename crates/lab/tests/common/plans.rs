// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans on the emulated computer that is measured on.

use super::{bochs, has_tools, kernel, say};
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use unspin_lab::{Computer, Kernel, Lab, Series, BOCHS_TOOLS};
use unspin_scenario::plan::Plan;
use unspin_scenario::result::{Record, RunResult};

/// The lab and its kernel, or `None` and the reason said.
pub fn lab() -> Option<(Lab, Kernel)> {
    if !has_tools(BOCHS_TOOLS) {
        return None;
    }
    let lab = super::lab();
    bochs(&lab);
    let kernel = kernel(&lab, Series::V6_12)?;
    Some((lab, kernel))
}

/// Every run's result, under Bochs; panics if one fails.
pub fn boot(lab: &Lab, kernel: &Kernel, plan: &Plan, name: &str) -> Vec<RunResult> {
    boot_on(lab, kernel, &Computer::bochs(plan.pcpus), plan, name)
}

/// The same on a computer of the caller's.
pub fn boot_on(
    lab: &Lab,
    kernel: &Kernel,
    computer: &Computer,
    plan: &Plan,
    name: &str,
) -> Vec<RunResult> {
    let start = Instant::now();
    let (mut results, mut failed) = (Vec::new(), Vec::new());
    let booted = lab.boot_plan(
        kernel,
        computer,
        &plan.clone().into(),
        name,
        &AtomicBool::new(false),
        &mut |record| match record {
            Record::Progress(p) => {
                say(&format!("[{:4}s] {}", start.elapsed().as_secs(), p.text));
            }
            Record::Run(result) => results.push(*result),
            Record::Failed { id, error } => failed.push(format!("run {id}: {error}")),
            Record::Log { text } => say(&text),
            _ => {}
        },
    );
    booted.unwrap_or_else(|e| panic!("{e}"));
    say(&format!("{name}: {} s", start.elapsed().as_secs()));
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(results.len(), plan.runs.len());
    results
}
