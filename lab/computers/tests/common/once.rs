// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario of the repository, each arm once, on the emulated computer that is measured on.

use super::plans::{of_repository, workloads};
use unspin_scenario::plan::Plan;
use unspin_scenario::result::RunResult;
use unspin_scenario::{expand, parse_scenario, Selection};

/// Measuring time of a scenario. These effects show within it.
const WINDOW_MS: u64 = 1000;

/// CPU time of a VM, of that of the host.
pub fn share(r: &RunResult, vm: u32) -> f64 {
    let cpu_ns: u64 = r.vm[vm as usize].cpu_ns.iter().sum();
    cpu_ns as f64 / (4.0 * r.window_ns as f64)
}

/// A scenario of the repository, once.
pub fn plan(name: &str) -> Plan {
    let text = of_repository(&format!("scenarios/{name}.toml"));
    let mut scenario = parse_scenario(name, name, &text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scenario.host.pcpus, 4);
    scenario.repeats = 1;
    let workloads = workloads(&scenario.profile_names());
    let mut plan = expand(&scenario, &text, &workloads, &Selection::default()).expect("the plan");
    plan.runs.iter_mut().for_each(|run| run.window_ms = WINDOW_MS);
    plan
}
