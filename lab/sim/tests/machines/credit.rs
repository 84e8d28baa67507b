// SPDX-License-Identifier: MIT OR Apache-2.0
//! Credit as the host's scheduler, with Xen's ranks if nothing else is said: shares, Equation 2 of
//! ASMan (HPDC 2011), coscheduling.

use crate::common::{self, busy, constant, contended, run, simulated, step, unpinned};
use unspin_scenario::plan::{CgroupLayout, Coscheduling, Dist, Op, Run, Step, Window};
use unspin_scenario::result::VmResult;
use unspin_sim::{Host, Kernel, Setup, Simulated, VmSetup};

const WAYS: [Coscheduling; 4] =
    [Coscheduling::None, Coscheduling::Con, Coscheduling::Vcrd, Coscheduling::VcrdPle];

/// VMs of those programs and weights on eight pCPUs under Xen's Credit, unpinned.
fn machine(capped: bool, way: Coscheduling, vms: &[(Vec<Step>, u32)]) -> Setup {
    machine_on(lab().with_xen_credit(capped), way, vms)
}

fn lab() -> Host {
    Host::lab(8, Kernel::V3_19)
}

fn machine_on(host: Host, way: Coscheduling, vms: &[(Vec<Step>, u32)]) -> Setup {
    let mut r = Run { window_ms: 6000, ..unpinned(run(1, 4, vec![])) };
    r.warmup_ms = 500;
    r.arm.coscheduling = way;
    if way != Coscheduling::VcrdPle {
        r.arm.window = Window::Off;
    }
    let mut setup = Setup::new(&host, &r);
    let first = setup.vms.pop().unwrap();
    for (i, (program, weight)) in vms.iter().enumerate() {
        setup.vms.push(VmSetup {
            program: program.clone(),
            weight: *weight,
            seed: i as u64 + 7,
            start_ns: 1_000_003 * i as u64,
            ..first.clone()
        });
    }
    setup
}

fn idle() -> Vec<Step> {
    vec![step(Op::Block, constant(0), 0)]
}

/// Share of the window a vCPU of the VM was on a pCPU: its online rate.
fn online(vm: &VmResult, window_ns: u64) -> f64 {
    vm.cpu_ns.iter().sum::<u64>() as f64 / (vm.cpu_ns.len() as u64 * window_ns) as f64
}

/// The paper's section 5.2: weights 256 to 32 beside an idle Dom0 of 256 give 100 to 22.2 %,
/// whether vCPUs run together or not.
#[test]
fn a_capped_vm_is_online_as_equation_2_says() {
    for way in WAYS {
        for (weight, rate) in [(256, 1.0), (128, 0.667), (64, 0.4), (32, 0.222)] {
            for program in [busy(), contended(2000, 500)] {
                let setup = machine(true, way, &[(program, weight), (idle(), 256)]);
                let got = simulated(&setup).result;
                let online = online(&got.vm[0], got.window_ns);
                assert!((online - rate).abs() < 0.03, "{way:?} {weight}: {online} not {rate}");
                let dom0 = got.vm[1].cpu_ns.iter().sum::<u64>();
                assert_eq!(dom0, 0, "the idle VM runs");
            }
        }
    }
}

/// Of two VMs of equal weight neither gets more than half, however their vCPUs run together. One has
/// more vCPUs than there are pCPUs: those that share a pCPU owe less than their siblings.
#[test]
fn no_capped_vm_gets_more_than_its_weights_share() {
    let long = Dist::Exp { mean: 200_000, max: 1_000_000 };
    let mut rare = contended(0, 200);
    rare[0] = step(Op::Compute, long, 0);
    for way in WAYS {
        for (vcpus, seed) in [(8, 2), (12, 1), (12, 2), (12, 3), (16, 2)] {
            let mut r = Run { window_ms: 6000, ..unpinned(run(2, 4, rare.clone())) };
            (r.warmup_ms, r.stagger_ms, r.seed, r.cgroup) = (500, 20, seed, CgroupLayout::Vm);
            r.arm.coscheduling = way;
            r.vms[1].vcpus = vcpus;
            let setup = Setup::new(&lab().with_xen_credit(true), &r);
            let got = simulated(&setup).result;
            let share =
                |vm: &VmResult| vm.cpu_ns.iter().sum::<u64>() as f64 / (8 * got.window_ns) as f64;
            let shares: Vec<f64> = got.vm.iter().map(share).collect();
            let most = shares.iter().copied().fold(0.0, f64::max);
            assert!(most < 0.51, "{way:?}, {vcpus} vCPUs, seed {seed}: {shares:.3?}");
        }
    }
}

/// What Equation 2 says of an idle VM: it costs a capped one its share, and others nothing.
#[test]
fn an_idle_vm_takes_its_share_only_where_shares_are_caps() {
    for (capped, rate) in [(true, 1.0), (false, 1.0)] {
        let alone = simulated(&machine(capped, Coscheduling::None, &[(busy(), 100)])).result;
        let alone = online(&alone.vm[0], alone.window_ns);
        assert!((alone - rate).abs() < 0.01, "alone: {alone}");
    }
    let beside = |capped| {
        let vms = [(busy(), 100), (idle(), 300)];
        let got = simulated(&machine(capped, Coscheduling::None, &vms)).result;
        online(&got.vm[0], got.window_ns)
    };
    assert!((beside(true) - 0.5).abs() < 0.02, "8 pCPUs x 1/4 for 4 vCPUs: {}", beside(true));
    assert!((beside(false) - 1.0).abs() < 0.01, "nothing is taken: {}", beside(false));
}

#[test]
fn shares_follow_weights_where_everybody_is_busy() {
    for way in WAYS {
        let vms = [(busy(), 100), (busy(), 100), (busy(), 200)];
        let got = simulated(&machine(false, way, &vms)).result;
        let shares: Vec<f64> = got.vm.iter().map(|vm| online(vm, got.window_ns)).collect();
        // 8 pCPUs by 1:1:2 for 12 vCPUs.
        for (share, expected) in shares.iter().zip([0.5, 0.5, 1.0]) {
            assert!((share - expected).abs() < 0.04, "{way:?}: {shares:?}");
        }
    }
}

#[test]
fn nothing_idles_while_somebody_waits_on_a_work_conserving_host() {
    for way in WAYS {
        let vms = [(busy(), 256), (busy(), 256), (busy(), 256), (idle(), 256)];
        let got = simulated(&machine(false, way, &vms)).result;
        let cpu: u64 = got.vm.iter().flat_map(|vm| &vm.cpu_ns).sum();
        let idle = 1.0 - cpu as f64 / (8 * got.window_ns) as f64;
        let most = if way == Coscheduling::Con { 0.01 } else { 0.002 };
        assert!(idle < most, "{way:?}: {idle} of the host idles");
    }
}

/// Waits above 2^20 cycles in all VMs, by the histogram.
fn long_waits(s: &Simulated) -> u64 {
    s.result.vm.iter().flat_map(|vm| &vm.wait_hist[20..]).sum()
}

#[test]
fn coscheduling_prevents_over_threshold_waits() {
    for vms in
        [vec![(contended(3000, 600), 32), (idle(), 256)], vec![(contended(3000, 600), 256); 4]]
    {
        let capped = vms.len() == 2;
        let [plain, con, vcrd, ple] = WAYS.map(|way| simulated(&machine(capped, way, &vms)));
        let waits = [&plain, &con, &vcrd, &ple].map(long_waits);
        assert!(waits[0] > 90, "{waits:?}");
        assert!((1..4).all(|way| 3 * waits[way] < 2 * waits[0]), "a third at least: {waits:?}");
        assert_eq!((plain.coscheduling[0].events, plain.coscheduling[0].gangs), (0, 0));
        assert!(plain.coscheduling[0].long_waits > 20);
        assert!(con.coscheduling[0].events == 0 && con.coscheduling[0].gangs > 0);
        assert!(vcrd.coscheduling[0].events > 0 && vcrd.coscheduling[0].high_us > 0);
        assert!(ple.coscheduling[0].events > 0, "PLE exits show long waits as well");
    }
}

#[test]
fn a_vm_that_never_waits_long_is_never_run_together() {
    for way in [Coscheduling::Vcrd, Coscheduling::VcrdPle] {
        let got = simulated(&machine(false, way, &vec![(busy(), 256); 4]));
        assert_eq!(got.coscheduling, vec![Default::default(); 4], "{way:?}");
    }
}

#[test]
fn weights_twice_as_large_change_nothing() {
    for capped in [false, true] {
        for way in WAYS {
            let by = |factor: u32| {
                let vms = [(contended(2000, 500), 32 * factor), (busy(), 100 * factor)];
                simulated(&machine(capped, way, &vms)).result.vm
            };
            assert_eq!(by(1), by(2), "{capped} {way:?}");
        }
    }
}

/// Pinned vCPUs stay: one pCPU has both, seven have none.
#[test]
fn pinned_vcpus_are_not_balanced() {
    let mut setup = machine(false, Coscheduling::None, &[(busy(), 256), (busy(), 256)]);
    for vm in &mut setup.vms {
        vm.pin = vec![3; 4];
    }
    let got = simulated(&setup).result;
    let cpu: u64 = got.vm.iter().flat_map(|vm| &vm.cpu_ns).sum();
    assert_eq!(cpu, got.window_ns, "one pCPU's worth");
    for ns in got.vm.iter().flat_map(|vm| &vm.cpu_ns) {
        assert!(ns.abs_diff(got.window_ns / 8) < got.window_ns / 100, "an eighth each: {ns}");
    }
}

#[test]
fn a_longer_allocation_period_is_heeded() {
    for period_ms in [24, 30, 96, 192] {
        let mut setup = machine(true, Coscheduling::None, &[(busy(), 64), (idle(), 256)]);
        setup.host = setup.host.with_period_ns(period_ms * 1_000_000);
        let slots = setup.host.credit.unwrap().params.slots_per_assignment;
        assert_eq!(u64::from(slots), period_ms / 10);
        let got = simulated(&setup).result;
        let online = online(&got.vm[0], got.window_ns);
        assert!((online - 0.4).abs() < 0.03, "{period_ms} ms: {online}");
    }
}

/// By maximal credit, too: Equation 2, and no more than the share where vCPUs only pay and earn.
#[test]
fn by_maximal_credit_a_capped_vm_has_its_share() {
    for (weight, rate) in [(64, 0.4), (32, 0.222)] {
        for slot_us in [10_000, 30_000] {
            let host = lab().with_credit(true);
            let vms = [(busy(), weight), (idle(), 256)];
            let mut setup = machine_on(host, Coscheduling::None, &vms);
            setup.run.arm.turn_us = Some(slot_us);
            let got = simulated(&setup).result;
            let online = online(&got.vm[0], got.window_ns);
            assert!((online - rate).abs() < 0.03, "{weight}, {slot_us} us: {online} not {rate}");
        }
    }
}

/// One name, one scheduler: each has results of its own, and slots have the length the arm says.
#[test]
fn the_two_schedulers_are_not_one_and_slots_matter() {
    let of = |host: Host, slot_us| {
        let vms = [(contended(2000, 500), 100), (busy(), 100), (busy(), 200)];
        let mut setup = machine_on(host, Coscheduling::None, &vms);
        setup.run.arm.turn_us = slot_us;
        simulated(&setup).result.vm
    };
    let usual = of(lab().with_credit(false), None);
    assert_eq!(of(lab().with_credit(false), Some(10_000)), usual, "slots of 10 ms are the usual");
    assert_ne!(of(lab().with_credit(false), Some(30_000)), usual);
    assert_ne!(of(lab().with_xen_credit(false), None), usual);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let refused = |change: fn(&mut Setup), why: &str| {
        let mut setup = machine(false, Coscheduling::Con, &[(busy(), 1)]);
        change(&mut setup);
        common::refused(&setup, why);
    };
    refused(|s| s.run.arm.turn_us = Some(6000), "Credit has none");
    refused(|s| s.run.arm.asym.time = true, "need the fair scheduler");
    refused(|s| s.run.arm.yield_to = unspin_scenario::plan::YieldTo::HVS, "no directed yield");
    refused(|s| s.host.credit.as_mut().unwrap().params.slot_us = 0, "slot_us is 0");
    refused(|s| s.host.credit.as_mut().unwrap().vcrd.values = 0, "values is not in 1..32");
}
