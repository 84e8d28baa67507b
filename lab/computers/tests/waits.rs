// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is yielded to, on the emulated computer: a sibling that was woken and waits for a core is one
//! to yield to (beside two VMs that never rest, four CPUs); and vCPUs that are pinned nowhere are found
//! wherever the scheduler took them (eight CPUs). Each decision is made again in user space.

mod common;

use common::plans::{boot, lab, of_repository, planned};
use unspin_replay::{replay, Tally};
use unspin_scenario::plan::Plan;
use unspin_scenario::result::RunResult;

/// HVS_WOKEN of policy/hvs.h.
const WOKEN: u8 = 4;
/// Yields to woken siblings that a run must have: 21 to 24 were counted, and none by a module to which
/// woken siblings are invisible.
const YIELDS_MIN: u64 = 8;

#[test]
fn a_woken_sibling_gets_the_core_of_who_waits_for_it() {
    let _alone = common::alone();
    let Some((lab, kernel)) = lab() else { return };
    let plan = plan("woken", &["wake-and-wait", "compute"]);
    for result in boot(&lab, &kernel, &plan, "woken") {
        let tally = decided(&result);
        let woken = tally.taken.get(&WOKEN).copied().unwrap_or(0);
        assert!(woken >= YIELDS_MIN, "{woken} yields to woken siblings of {:?}", tally.taken);
    }
}

#[test]
fn vcpus_that_move_are_found() {
    let _alone = common::alone();
    let Some((lab, kernel)) = lab() else { return };
    let plan = plan("eight", &["ebizzy", "dbench", "compute"]);
    for result in boot(&lab, &kernel, &plan, "eight") {
        let tally = decided(&result);
        assert!(tally.picks > 20, "{} picks", tally.picks);
    }
}

/// The scenario's first run under HVS, shorter, its decisions recorded.
fn plan(name: &str, profiles: &[&str]) -> Plan {
    let mut plan = planned(name, &of_repository(&format!("scenarios/{name}.toml")), profiles);
    plan.runs.retain(|run| run.arm.name == "hvs");
    plan.runs.truncate(1);
    let run = &mut plan.runs[0];
    (run.warmup_ms, run.window_ms, run.trace_picks) = (50, 200, true);
    plan
}

/// Its first VM spun, was never left to KVM, and every choice of all is the policy's.
fn decided(result: &RunResult) -> Tally {
    let vm = &result.vm[0];
    assert_eq!(vm.error, None, "run {}", result.run.id);
    let module = vm.module.clone().expect("the module's counters");
    assert!(module.ple_exits > 0 && module.yields() > 0, "{module:?}");
    assert_eq!(module.fail_open_events, 0, "the VM was left to KVM: {module:?}");
    let mut tally = Tally::default();
    replay(result.trace.iter().map(String::as_str), &mut tally).unwrap_or_else(|e| panic!("{e:#}"));
    common::say(&format!(
        "{}: {} picks, yields by category {:?}; {} PLE exits, {} found nobody",
        result.run.profile, tally.picks, tally.taken, module.ple_exits, module.yields_none
    ));
    assert!(tally.different.is_empty(), "{:#?}", tally.different);
    tally
}
