// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small machines to test with.

#![allow(dead_code)] // each test binary uses its part

pub mod turns;

use unspin_scenario::plan::{Arm, Dist, Op, Run, Step, Window, YieldTo};
use unspin_scenario::result::{Attribution, ModuleStats, VmResult};
use unspin_sim::{simulate_setup, Host, Kernel, Setup, Simulated};

pub fn step(op: Op, dist: Dist, lock: u32) -> Step {
    Step { op, dist, lock, permille: 1000 }
}

pub fn constant(iterations: u32) -> Dist {
    Dist::Const { iterations }
}

/// Computes all the time.
pub fn busy() -> Vec<Step> {
    vec![step(Op::Compute, constant(20_000), 0)]
}

/// Thinks, then holds a lock, for about as many iterations.
pub fn contended(think: u32, hold: u32) -> Vec<Step> {
    vec![
        step(Op::Compute, Dist::Exp { mean: think, max: 8 * think }, 0),
        step(Op::Lock, constant(0), 0),
        step(Op::Critical, Dist::Uniform { min: hold / 2, max: hold + hold / 2 }, 0),
        step(Op::Unlock, constant(0), 0),
    ]
}

/// As [`contended`], and sleeps now and then.
pub fn sleeping(think: u32, hold: u32) -> Vec<Step> {
    let mut program = contended(think, hold);
    let sleep = step(Op::Block, Dist::Exp { mean: 500_000, max: 4_000_000 }, 0);
    program.push(Step { permille: 20, ..sleep });
    program.push(step(Op::Wake, constant(0), 0));
    program
}

pub fn run(vms: u32, vcpus: u32, program: Vec<Step>) -> Run {
    Run {
        profile: "test".into(),
        arm: arm(Window::Stock, YieldTo::Stock),
        epoch_ple_exits: Some(50),
        warmup_ms: 20,
        stagger_ms: 10,
        ..Run::new(program, vms, vcpus).with(|vm| {
            (vm.spin_intensive, vm.pin) = (true, (0..vcpus).collect());
        })
    }
}

/// The same with vCPUs that may run anywhere.
pub fn unpinned(run: Run) -> Run {
    run.with(|vm| vm.pin.clear())
}

pub fn arm(window: Window, yield_to: YieldTo) -> Arm {
    Arm { name: "arm".into(), window, yield_to, observe: true, lock: None, ..Arm::default() }
}

pub fn setup(kernel: Kernel, run: &Run) -> Setup {
    let pcpus = run.vms.iter().flat_map(|vm| &vm.pin).max().map_or(4, |p| p + 1);
    Setup::new(&Host::lab(pcpus, kernel), run)
}

pub fn simulated(setup: &Setup) -> Simulated {
    simulate_setup(setup).unwrap()
}

pub fn vms(setup: &Setup) -> Vec<VmResult> {
    simulated(setup).result.vm
}

pub fn refused(setup: &Setup, why: &str) {
    let error = simulate_setup(setup).unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

/// A count of the module, of all VMs.
pub fn total(vms: &[VmResult], count: fn(&ModuleStats) -> u64) -> u64 {
    vms.iter().map(|vm| count(vm.module.as_ref().unwrap())).sum()
}

pub fn sum_ns(a: &Attribution) -> u64 {
    a.useful_ns
        + a.spin_holder_running_ns
        + a.spin_holder_preempted_ns
        + a.switch_ns
        + a.exit_ns
        + a.halted_ns
        + a.waiting_ns
}
