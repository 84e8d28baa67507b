// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's own tasks and its late ticks.

use crate::common::{constant, contended, run, step};
use unspin_scenario::plan::{CgroupLayout, Op, Run, YieldTo};
use unspin_sim::{simulate_setup, Host, Kernel, Setup, Simulated};

fn simulated(run: &Run, change: impl Fn(Host) -> Host) -> Simulated {
    simulate_setup(&Setup::new(&change(Host::server(4, Kernel::V6_12)), run)).unwrap()
}

fn with_ppm(run: &Run, ppm: u32) -> Simulated {
    simulated(run, |host| Host { housekeeping_ppm: ppm, ..host })
}

/// Four vCPUs that compute, each alone on its pCPU.
fn alone() -> Run {
    Run { window_ms: 20_000, ..run(1, 4, vec![step(Op::Compute, constant(200_000), 0)]) }
}

fn useful_ns(of: &Simulated) -> f64 {
    of.result.vm[0].attribution.unwrap().useful_ns as f64
}

/// A vCPU that computes loses what the tasks take, and eleven times a second an interrupt and a switch.
#[test]
fn tasks_take_the_share_that_is_said() {
    let run = alone();
    let without = with_ppm(&run, 0);
    let costs = Host::server(4, Kernel::V6_12).costs;
    let way_ns = f64::from(costs.interrupt_cycles + costs.switch_cycles) / 2.4;
    for ppm in [200, 460, 5_000, 50_000] {
        let lost = 1.0 - useful_ns(&with_ppm(&run, ppm)) / useful_ns(&without);
        let due = f64::from(ppm) / 1e6 + 11.0 * way_ns / 1e9;
        // 880 tasks of lengths whose deviation is their mean.
        assert!((lost / due - 1.0).abs() < 0.15, "{ppm}: {lost:.6}, not {due:.6}");
    }
}

#[test]
fn a_seed_says_when_they_come() {
    let short = |seed| Run { seed, window_ms: 500, ..alone() };
    let events = |seed| simulated(&short(seed), |host| host);
    assert_eq!(events(1).result, events(1).result);
    let cpu = |s: &Simulated| s.result.vm[0].attribution.unwrap();
    assert_ne!(cpu(&events(1)).exit_ns, cpu(&events(2)).exit_ns);
}

/// Arms of one run meet the same tasks, so that what differs is the arm's doing.
#[test]
fn arms_meet_the_same_tasks() {
    let mut stock = Run { window_ms: 2_000, ..alone() };
    let of = |run: &Run| simulated(run, |host| host).result.vm[0].attribution;
    let before = of(&stock);
    stock.arm.yield_to = YieldTo::HVS;
    assert_eq!(before, of(&stock), "nobody spins");
}

/// vCPUs that never sleep, and whose slices end at the same ticks, keep step for ever without them.
#[test]
fn nobody_keeps_step_for_ever() {
    let run =
        Run { cgroup: CgroupLayout::Vm, window_ms: 1_000, ..run(2, 4, contended(100_000, 1_000)) };
    let spun = |ppm| {
        let done = simulated(&run, |h| Host { housekeeping_ppm: ppm, skew_tick: false, ..h });
        let of = |vm: &unspin_scenario::result::VmResult| {
            vm.attribution.unwrap().spin_holder_preempted_ns
        };
        done.result.vm.iter().map(of).sum::<u64>()
    };
    assert!(spun(460) > 2 * spun(0), "{} without, {} with", spun(0), spun(460));
}

/// Neither Xen's Dom0 nor tasks beside a scheduler of sched_ext are modelled.
#[test]
fn credit_has_none() {
    let run = Run { window_ms: 200, ..run(2, 4, contended(3_000, 600)) };
    for with in [Host::with_credit, Host::with_xen_credit] {
        let of = |ppm| simulated(&run, |h| Host { housekeeping_ppm: ppm, ..with(h, false) }).result;
        assert_eq!(of(0), of(460));
    }
}
