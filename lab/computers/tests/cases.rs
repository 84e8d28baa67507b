// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases of scenarios/diagnosis.toml in small: states of vCPUs under VT-x, in Bochs, against what the
//! kernel itself says of their threads, and causes that were put there.

mod common;

use common::plans;
use unspin_diagnosis::{dominant, losses, Cause, Did, State};
use unspin_scenario::plan::{Plan, Run};
use unspin_scenario::result::{RunResult, VmResult};

const SCENARIO: &str = r#"
title = "Cases"
repeats = 1
vm = [
    { name = "computes", vcpus = 2, pin = "one-per-pcpu", workload = "compute" },
    { name = "two-compute", count = 2, vcpus = 2, pin = "one-per-pcpu", workload = "compute" },
    { name = "halts", vcpus = 2, pin = "one-per-pcpu", workload = "one-lock", lock = "pv-queued" },
]
arm = [{ name = "stock" }]
case = [
    { name = "alone", vms = ["computes"] },
    { name = "two-vms", inject = ["contention"], vms = ["two-compute"] },
    { name = "pv-queued", inject = ["idle-switch"], vms = ["halts"] },
]
[host]
pcpus = 2
[measure]
warmup_ms = 40
window_ms = 80
stagger_ms = 0
"#;

/// Of the window: how far the time that a VM is on CPUs may be from its threads' CPU time.
const APART_MAX: f64 = 0.02;

#[test]
fn vms_lose_what_was_put_there() {
    if common::built("unspin-watch", "cases").is_none() {
        return;
    }
    let Some((lab, kernel)) = plans::lab() else { return };
    let results = plans::boot(&lab, &kernel, &plan(), "cases");
    let wrong: Vec<String> = results.iter().flat_map(judged).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn plan() -> Plan {
    plans::planned("cases", SCENARIO, &["compute", "one-lock"])
}

/// The faults of a run.
fn judged(result: &RunResult) -> Vec<String> {
    let of_vm = |vm| {
        let what = wrong_with(&result.run, vm);
        what.into_iter().map(|what| format!("{}: {what}", result.run.profile))
    };
    result.vm.iter().flat_map(of_vm).collect()
}

fn wrong_with(run: &Run, vm: &VmResult) -> Vec<String> {
    let Some(vcpus) = vm.states.as_ref().filter(|vcpus| !vcpus.is_empty()) else {
        return vec!["nobody watched".into()];
    };
    let mut did = Did { vcpus: vcpus.len(), ..Did::default() };
    for vcpu in vcpus {
        did.times += &vcpu.ns;
        did.exits += &vcpu.exits;
    }
    did.window_ns = did.times.total() / vcpus.len() as u64;
    let found = dominant(&losses(&did));
    let injected: Option<Cause> = run.inject.iter().flatten().next().copied();
    common::say(&format!("{}: {found:?}, {:?}", run.profile, did.times));
    let mut wrong = Vec::new();
    if found != injected {
        wrong.push(format!("{injected:?} was put there, {found:?} is dominant: {did:?}"));
    }
    let off = [State::Halted, State::Blocked, State::Stopped, State::Parked, State::Throttled];
    let is_on = |state: &State| !state.is_ready() && !off.contains(state);
    let on: Vec<State> = State::ALL.iter().copied().filter(is_on).collect();
    let cpu = vm.cpu_ns.iter().sum::<u64>() as f64 / did.times.total() as f64;
    let apart = (did.share(&on) - cpu).abs();
    if apart > APART_MAX {
        wrong.push(format!("{} of the time on CPUs, {cpu} by its threads", did.share(&on)));
    }
    wrong
}
