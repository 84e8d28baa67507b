// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checks of turns see each fault that is put in.

#[path = "../../../tests/common/turns.rs"]
mod checks;

use super::Sim;
use crate::engine::VmId;
use crate::host::Fault;
use crate::setup::tests::two_vms;
use crate::setup::Setup;
use unspin_scenario::plan::{CgroupLayout, Coscheduling, Dist, Op, Step, YieldTo};
use unspin_scenario::result::ModuleStats;

const TURN_NS: u64 = 6_000_000;

fn in_turns(way: Coscheduling) -> Setup {
    let mut setup = two_vms();
    setup.run.cgroup = CgroupLayout::Vm;
    setup.run.arm.coscheduling = way;
    setup.run.arm.yield_to = YieldTo::HVS;
    for vm in &mut setup.vms {
        vm.arm = setup.run.arm.clone();
        vm.start_ns = 0;
    }
    setup
}

fn made(setup: &Setup, fault: Option<Fault>, ms: u64) -> Sim {
    let mut sim = setup.build().unwrap();
    sim.host.turns.as_mut().unwrap().fault = fault;
    sim.run_until(ms * 1_000_000);
    sim
}

fn shares(fault: Option<Fault>) -> Result<(), String> {
    let mut setup = in_turns(Coscheduling::Con);
    let weights = [100, 300];
    for (vm, weight) in setup.vms.iter_mut().zip(weights) {
        vm.weight = weight;
    }
    let sim = made(&setup, fault, 2000);
    let of = |vm| sim.core.vms[vm].first.and_next(4).map(|v| sim.core.cpu_ns(v)).sum();
    let cpu_ns = [VmId(0), VmId(1)].map(of);
    checks::shares_are_by_weight(&cpu_ns, &weights, 4, TURN_NS)
}

fn waits(fault: Option<Fault>) -> Result<(), String> {
    let mut setup = in_turns(Coscheduling::Con);
    (setup.vms[0].weight, setup.vms[1].weight) = (10_000, 1);
    checks::nobody_waits_for_long(made(&setup, fault, 2000).turns_seen().longest_park_ns)
}

/// vCPUs that any pCPU may run, more than one on each of the two they began on.
fn crowds(fault: Option<Fault>) -> Result<(), String> {
    let mut setup = in_turns(Coscheduling::Con);
    setup.vms.iter_mut().for_each(|vm| vm.pin.clear());
    setup.host.pcpus = 8;
    // One sleeps often, so that pCPUs are free.
    let sleep = Step {
        op: Op::Block,
        dist: Dist::Exp { mean: 400_000, max: 4_000_000 },
        lock: 0,
        permille: 300,
    };
    setup.vms.iter_mut().for_each(|vm| vm.program.push(sleep));
    setup.vms.push(setup.vms[0].clone());
    checks::nobody_is_crowded(made(&setup, fault, 1000).turns_seen().crowded)
}

fn computing(fault: Option<Fault>) -> Result<(), String> {
    let mut setup = in_turns(Coscheduling::VcrdPle);
    for vm in &mut setup.vms {
        vm.program.truncate(1);
    }
    let sim = made(&setup, fault, 500);
    let turns = |vm| {
        let mut stats = ModuleStats::default();
        sim.host.turns.as_ref().unwrap().count(&sim.core, vm, &mut stats);
        stats.turns
    };
    checks::no_turns(turns(VmId(0)) + turns(VmId(1)))
}

#[test]
fn the_checks_of_turns_see_what_they_are_for() {
    type Check = fn(Option<Fault>) -> Result<(), String>;
    let all: [(Fault, Check); 4] = [
        (Fault::OwesNothing, shares),
        (Fault::WaitsOn, waits),
        (Fault::StaysPut, crowds),
        (Fault::AllSpin, computing),
    ];
    for (fault, check) in all {
        check(None).unwrap_or_else(|why| panic!("without {fault:?}: {why}"));
        assert!(check(Some(fault)).is_err(), "{fault:?} goes unseen");
    }
}
