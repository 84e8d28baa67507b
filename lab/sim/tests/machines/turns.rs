// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns of VMs whose vCPUs run together, which the module makes on a host with the fair scheduler.
//! That these checks can fail is shown inside the crate (`src/machine/tests/turns.rs`).

use crate::common::{
    self, arm, busy, constant, contended, run, simulated, sleeping, step, total, turns,
};
use proptest::prelude::*;
use unspin_scenario::plan::{
    Asym, CgroupLayout, Coscheduling, CoschedulingMechanism, Dist, Op, Run, Step, Window, YieldTo,
};
use unspin_scenario::result::{ModuleStats, VmResult};
use unspin_sim::{Host, Kernel, Setup, Simulated};

fn cases() -> u32 {
    std::env::var("UNSPIN_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1000) / 10
}

/// VMs of four vCPUs on four pCPUs, under HVS and in turns.
fn in_turns(way: Coscheduling, vms: u32, program: Vec<Step>) -> Setup {
    let mut run = Run { window_ms: 400, ..run(vms, 4, program) };
    run.arm = arm(Window::Stock, YieldTo::HVS);
    run.arm.coscheduling = way;
    Setup::new(&Host::lab(4, Kernel::V6_12), &run)
}

fn units(of: &Simulated) -> u64 {
    of.result.vm.iter().flat_map(|vm| &vm.units).sum()
}

fn module(vm: &VmResult) -> &ModuleStats {
    vm.module.as_ref().unwrap()
}

fn sum(of: &Simulated, count: fn(&ModuleStats) -> u64) -> u64 {
    total(&of.result.vm, count)
}

fn spinning_in_user_space() -> Vec<Step> {
    vec![step(Op::Compute, constant(9000), 0), step(Op::UserBarrier, constant(0), 0)]
}

#[test]
fn who_waits_for_siblings_does_many_times_as_much_in_turns() {
    for cgroup in [CgroupLayout::Flat, CgroupLayout::Vm, CgroupLayout::Vcpu] {
        let made = |way| {
            let mut setup = in_turns(way, 3, spinning_in_user_space());
            setup.run.cgroup = cgroup;
            simulated(&setup)
        };
        let (without, with) = (made(Coscheduling::None), made(Coscheduling::Con));
        assert!(units(&with) > 3 * units(&without), "{} {}", units(&with), units(&without));
        let turns = sum(&with, |m| m.turns);
        assert!((60..=80).contains(&turns), "{turns} turns of 6 ms in 400 ms");
        let window = (with.result.window_ns / 5) as f64;
        let owned = sum(&with, |m| m.turn_cycles) as f64 / window;
        assert!((0.95..=1.05).contains(&owned), "{owned} of the window was owned");
        assert!(sum(&with, |m| m.parks) > 100 && sum(&without, |m| m.parks) == 0);
        assert_eq!(without.turns, Default::default());
    }
}

/// The total time stays the same; only its division among the vCPUs changes.
#[test]
fn shares_are_by_weight() {
    for (layout, weights) in [
        (CgroupLayout::Flat, [1, 1, 1]),
        (CgroupLayout::Vm, [100, 200, 300]),
        (CgroupLayout::Vcpu, [300, 100, 100]),
    ] {
        for kernel in [Kernel::V3_19, Kernel::V6_1, Kernel::V6_12] {
            let mut setup = in_turns(Coscheduling::Con, 3, contended(1000, 400));
            setup.host = Host::lab(4, kernel);
            setup.run.cgroup = layout;
            setup.run.window_ms = 1000;
            for (vm, weight) in setup.vms.iter_mut().zip(weights) {
                vm.weight = weight;
            }
            // One of them is of the group.
            setup.vms[1].arm.coscheduling = Coscheduling::None;
            let got = simulated(&setup);
            let cpu: Vec<u64> = got.result.vm.iter().map(|vm| vm.cpu_ns.iter().sum()).collect();
            turns::shares_are_by_weight(&cpu, &weights, 4, 6_000_000).unwrap();
            assert_eq!(module(&got.result.vm[1]).turns, 0);
        }
    }
}

#[test]
fn turns_are_of_the_length_that_the_arm_says() {
    for (turn_us, least, most) in [(3000, 120, 145), (6000, 60, 72), (20_000, 18, 22)] {
        let mut setup = in_turns(Coscheduling::Con, 2, contended(1000, 400));
        for vm in &mut setup.vms {
            vm.arm.turn_us = Some(turn_us);
        }
        let turns = sum(&simulated(&setup), |m| m.turns);
        assert!((least..=most).contains(&turns), "{turns} turns of {turn_us} us");
    }
}

#[test]
fn who_spins_is_found_and_who_does_not_is_left_alone() {
    let mut setup = in_turns(Coscheduling::VcrdPle, 3, contended(600, 600));
    setup.run.window_ms = 1000;
    setup.vms[2].program = busy();
    let got = simulated(&setup);
    let turns: Vec<u64> = got.result.vm.iter().map(|vm| module(vm).turns).collect();
    assert!(turns[0] > 20 && turns[1] > 20 && turns[2] == 0, "{turns:?}");
    for kernel in [Kernel::V3_19, Kernel::V6_12] {
        for vms in [1, 2, 4] {
            let mut setup = in_turns(Coscheduling::VcrdPle, vms, busy());
            setup.host = Host::lab(4, kernel);
            let got = simulated(&setup);
            turns::no_turns(sum(&got, |m| m.turns) + got.turns.owned).unwrap();
            assert_eq!(sum(&got, |m| m.parks), 0);
        }
    }
}

/// The owner's vCPUs sleep now and then, and others use their pCPUs meanwhile.
#[test]
fn holes_are_filled() {
    let mut setup = in_turns(Coscheduling::Con, 2, sleeping(1000, 400));
    setup.vms[1].program = busy();
    let got = simulated(&setup);
    let fills: Vec<u64> = got.result.vm.iter().map(|vm| module(vm).fills).collect();
    assert!(fills[1] > 50, "{fills:?}");
    let idle =
        got.result.window_ns * 4 - got.result.vm.iter().flat_map(|vm| &vm.cpu_ns).sum::<u64>();
    assert!(idle < got.result.window_ns / 10, "{idle} ns idle of {}", got.result.window_ns);
}

/// A VM that answers, one that computes and two that have turns. What the second of the group got is charged to the
/// first, too, but does not decide whether the first may run when it wakes up.
#[test]
fn who_sleeps_does_not_wait_for_what_others_of_the_group_got() {
    let mut setup = in_turns(Coscheduling::Con, 4, contended(1000, 400));
    setup.run.window_ms = 2000;
    let mean = |mean| Dist::Exp { mean, max: 8 * mean };
    let answers = vec![step(Op::Compute, mean(20_000), 0), step(Op::Block, mean(1_000_000), 0)];
    for (vm, program) in setup.vms.iter_mut().zip([answers, busy()]) {
        vm.arm.coscheduling = Coscheduling::None;
        vm.program = program;
    }
    let got = simulated(&setup);
    let answers = module(&got.result.vm[0]);
    assert!(answers.parks < 20, "{} waits", answers.parks);
    assert!(units(&got) > 0 && module(&got.result.vm[2]).turns > 50);
}

/// A VM alone has no rivals.
#[test]
fn one_vm_has_no_turns() {
    let got = simulated(&in_turns(Coscheduling::Con, 1, contended(1000, 400)));
    assert_eq!((got.turns.owned, sum(&got, |m| m.turns)), (0, 0));
}

/// One of little weight is not owed a turn for long, and runs all the same.
#[test]
fn nobody_waits_for_longer_than_200_ms() {
    let mut setup = in_turns(Coscheduling::Con, 2, contended(1000, 400));
    setup.run.cgroup = CgroupLayout::Vm;
    setup.run.window_ms = 2000;
    (setup.vms[0].weight, setup.vms[1].weight) = (10_000, 1);
    let got = simulated(&setup);
    turns::nobody_waits_for_long(got.turns.longest_park_ns).unwrap();
    assert!(got.turns.longest_park_ns > 150_000_000, "{}", got.turns.longest_park_ns);
    assert!(module(&got.result.vm[1]).parks_late > 0);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let refused = |way, change: fn(&mut Setup), why: &str| {
        let mut setup = in_turns(way, 2, busy());
        change(&mut setup);
        common::refused(&setup, why);
    };
    refused(Coscheduling::Vcrd, |_| (), "needs Credit");
    refused(Coscheduling::VcrdUser, |_| (), "do not spin in user space");
    refused(Coscheduling::VcrdBoth, |_| (), "do not spin in user space");
    refused(Coscheduling::Con, |s| s.run.arm.yield_to = YieldTo::Stock, "leaves its VMs to KVM");
    let with_asym = |s: &mut Setup| s.run.arm.asym = Asym { time: true, ..Asym::default() };
    refused(Coscheduling::Con, with_asym, "do not go together");
    let other = |s: &mut Setup| s.run.arm.coscheduling_mechanism = CoschedulingMechanism::Scheduler;
    refused(Coscheduling::Con, other, "no unspin schedule");
    refused(Coscheduling::Con, |s| s.host.pcpus = 1025, "1025 pCPUs; at most 1024");
    let credit = |s: &mut Setup| {
        (s.host, s.run.arm.yield_to) = (s.host.clone().with_xen_credit(false), YieldTo::Stock);
        s.run.arm.turn_us = Some(6000);
    };
    refused(Coscheduling::Con, credit, "Credit has none");
}

/// Busy VMs in turns. Under `con` one of them may be the group: of several, the scheduler divides the
/// group's turns, and who gets less than its part there is owed it for good.
fn busy_machine() -> impl Strategy<Value = Setup> {
    let kernels = vec![Kernel::V3_19, Kernel::V6_1, Kernel::V6_12, Kernel::V6_13, Kernel::V6_19];
    let programs =
        vec![contended(600, 600), contended(3000, 300), busy(), spinning_in_user_space()];
    let layouts = vec![CgroupLayout::Flat, CgroupLayout::Vm, CgroupLayout::Vcpu];
    let each = (prop::sample::select(programs), any::<bool>(), 1..5u32);
    (
        prop::sample::select(kernels),
        prop::sample::select(layouts),
        prop::collection::vec(each, 2..5),
        (1..5u32, 1000..12_000u32, any::<u64>(), any::<bool>(), any::<bool>()),
    )
        .prop_map(|(kernel, layout, each, (vcpus, turn_us, seed, con, pinned))| {
            let way = if con { Coscheduling::Con } else { Coscheduling::VcrdPle };
            let mut run = Run { window_ms: 400, seed, ..run(each.len() as u32, vcpus, busy()) };
            run.arm = arm(Window::Stock, YieldTo::HVS);
            (run.arm.coscheduling, run.arm.turn_us, run.cgroup) = (way, Some(turn_us), layout);
            let pcpus = if pinned { vcpus } else { vcpus + (seed % 3) as u32 };
            if !pinned {
                run = common::unpinned(run);
            }
            let mut setup = Setup::new(&Host::lab(pcpus, kernel), &run);
            for (number, (vm, (program, gangs, weight))) in
                setup.vms.iter_mut().zip(each).enumerate()
            {
                vm.program = program;
                vm.weight = if layout == CgroupLayout::Flat { 1 } else { weight };
                if !gangs && (number == 0 || !con) {
                    vm.arm.coscheduling = Coscheduling::None;
                }
            }
            setup
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn turns_only_move_time(setup in busy_machine()) {
        let got = simulated(&setup);
        let turn_ns = u64::from(setup.run.arm.turn_us.unwrap()) * 1000;
        if setup.run.arm.coscheduling == Coscheduling::Con && !setup.vms[0].pin.is_empty() {
            let cpu: Vec<u64> = got.result.vm.iter().map(|vm| vm.cpu_ns.iter().sum()).collect();
            let weights: Vec<u32> = setup.vms.iter().map(|vm| vm.weight).collect();
            turns::shares_are_by_weight(&cpu, &weights, setup.vms[0].vcpus, turn_ns).unwrap();
        }
        turns::nobody_waits_for_long(got.turns.longest_park_ns).unwrap();
        turns::nobody_is_crowded(got.turns.crowded).unwrap();
        let again = simulated(&setup);
        prop_assert_eq!((got.result, got.events, got.turns), (again.result, again.events, again.turns));
    }
}
