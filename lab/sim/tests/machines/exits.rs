// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the host decides who runs after an exit or an interrupt, and who pays for the way there.

use crate::common::{arm, constant, contended, run, setup, sleeping, step, total, vms};
use unspin_scenario::plan::{CgroupLayout, Op, Window, YieldTo};
use unspin_scenario::result::VmResult;
use unspin_sim::{Costs, Kernel, Setup};

fn with(setup: &Setup, change: fn(&mut Costs)) -> Setup {
    let mut setup = setup.clone();
    change(&mut setup.host.costs);
    setup
}

/// Cycles a PLE exit takes, with the way back from a switch.
fn exit_cycles(vms: &[VmResult]) -> u64 {
    let exits = total(vms, |m| m.ple_exits);
    assert!(exits > 200, "only {exits} exits");
    total(vms, |m| m.wasteful_switch_cycles) / exits
}

/// With one VM there is no vCPU to switch to: an exit takes as long whenever it is decided.
#[test]
fn deciding_later_is_no_matter_where_nobody_waits() {
    for yield_to in [YieldTo::Stock, YieldTo::HVS] {
        let mut r = run(1, 4, contended(200, 2_000));
        r.arm = arm(Window::Fixed { cycles: 1024 }, yield_to);
        let late = setup(Kernel::V6_1, &r);
        let at_once = with(&late, |c| c.decide_cycles = 0);
        assert!(exit_cycles(&vms(&late)) > 1_000);
        let (late, at_once) = (&vms(&late)[0], &vms(&at_once)[0]);
        assert_eq!((&late.units, late.attribution), (&at_once.units, at_once.attribution));
        let exits = |vm: &VmResult| vm.module.as_ref().unwrap().ple_exits;
        assert_eq!(exits(late), exits(at_once));
    }
}

/// Between VMs others run meanwhile, and the exits take about as long.
#[test]
fn deciding_later_makes_exits_no_dearer() {
    let mut r = run(3, 4, sleeping(1500, 500));
    r.arm = arm(Window::Fixed { cycles: 4096 }, YieldTo::HVS);
    let setup = setup(Kernel::V6_1, &r);
    let soon = with(&setup, |c| c.decide_cycles = 1);
    let (late, soon) = (vms(&setup), vms(&soon));
    assert_ne!(late[0].units, soon[0].units);
    let (a, b) = (exit_cycles(&late), exit_cycles(&soon));
    assert!(a.abs_diff(b) < b / 5, "{a} and {b} cycles an exit");
}

#[test]
fn a_level_of_groups_makes_switches_dearer() {
    let cycles = |cgroup| {
        let mut r = run(3, 4, contended(1500, 500));
        r.cgroup = cgroup;
        exit_cycles(&vms(&setup(Kernel::V6_1, &r)))
    };
    let [flat, vm, vcpu] = [CgroupLayout::Flat, CgroupLayout::Vm, CgroupLayout::Vcpu].map(cycles);
    for level in [vm - flat, vcpu - vm] {
        // 1,200 a switch; not every exit switches.
        assert!((600..=1_300).contains(&level), "{flat}, {vm}, {vcpu}");
    }
}

/// One vCPU computes, the other sleeps again and again on the same pCPU: the first pays for the
/// timer's interrupts.
#[test]
fn who_runs_pays_for_the_timer_of_who_sleeps() {
    let mut r = run(2, 1, vec![step(Op::Compute, constant(50_000), 0)]);
    r.vms[1].program =
        vec![step(Op::Block, constant(2_000_000), 0), step(Op::Compute, constant(10), 0)];
    let setup = setup(Kernel::V6_1, &r);
    let free = with(&setup, |c| c.timer_wake_cycles = 0);
    let exit_ns = |vms: &[VmResult]| vms[0].attribution.as_ref().unwrap().exit_ns;
    let (dear, free) = (vms(&setup), vms(&free));
    let wakes = dear[1].units[0];
    let each_ns = (exit_ns(&dear) - exit_ns(&free)) / wakes;
    // 3,550 cycles of 200 MHz.
    assert!(wakes > 30 && (16_000..=19_000).contains(&each_ns), "{wakes} of {each_ns} ns");
}

/// Cycles of an exit of each of `vcpus`, all of one VM and half of them without a pCPU, that spin for one
/// lock; `locked`: for how long a yield has run queues locked.
fn exit_cycles_of(vcpus: u32, locked: u32) -> u64 {
    let pcpus = vcpus / 2;
    let mut r = run(1, vcpus, contended(100, 20_000));
    r.vms[0].pin = (0..vcpus).map(|v| v % pcpus).collect();
    r.window_ms = 300;
    r.arm = arm(Window::Fixed { cycles: 512 }, YieldTo::HVS);
    let mut setup = setup(Kernel::V6_12, &r);
    setup.host.costs.queue_lock_cycles = locked;
    exit_cycles(&vms(&setup))
}

/// yield_to() takes the locks of two run queues: the more vCPUs exit at once, the longer they wait.
#[test]
fn exits_at_once_wait_for_run_queues() {
    let waits = |vcpus| {
        let (free, held) = (exit_cycles_of(vcpus, 0), exit_cycles_of(vcpus, 4_000));
        held as f64 - free as f64
    };
    let (few, many) = (waits(4), waits(16));
    assert!(many > 1_000.0 && many > 2.0 * few, "{few} cycles of 2 pCPUs, {many} of 8");
}

/// With one pCPU there is no running vCPU to wait for.
#[test]
fn one_pcpu_waits_for_no_run_queue() {
    assert_eq!(exit_cycles_of(2, 0), exit_cycles_of(2, 344));
}
