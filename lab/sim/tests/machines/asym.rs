// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dynamic asymmetric vCPUs (NJIT 2018, 5.4) over the fair scheduler.

use crate::common::{self, busy, constant, refused, run, setup, simulated, step, vms};
use unspin_scenario::plan::{Asym, Dist, Op, Run, Step, Window};
use unspin_sim::{Host, Kernel, Setup};

const NONE: Asym = Asym {
    time: false,
    latency: false,
    resolver: false,
    weight: false,
    uncorrected: false,
    period_ms: None,
};
const TIME: Asym = Asym { time: true, ..NONE };
const ALL: Asym = Asym { time: true, latency: true, resolver: true, ..NONE };
const PARTS: [Asym; 5] = [
    TIME,
    Asym { latency: true, ..NONE },
    Asym { resolver: true, ..NONE },
    Asym { time: true, latency: true, ..NONE },
    ALL,
];

/// Units of the first VM, the others computing.
fn units_beside_hogs(kernel: Kernel, program: Vec<Step>, vms: u32, asym: Asym) -> u64 {
    let mut r: Run = run(vms, 4, program);
    r.arm.window = Window::Off;
    r.arm.asym = asym;
    r.window_ms = 4000;
    let mut setup = setup(kernel, &r);
    for vm in &mut setup.vms[1..] {
        vm.program = busy();
    }
    simulated(&setup).result.vm[0].units.iter().sum()
}

/// Phases whose lengths differ between the vCPUs, longer than a period: who arrives early at the
/// barrier leaves time that the last one can use.
#[test]
fn time_goes_to_those_whom_the_others_wait_for() {
    let program = vec![
        step(Op::Compute, Dist::Exp { mean: 6_000_000, max: 60_000_000 }, 0),
        step(Op::Barrier, constant(0), 0),
    ];
    for kernel in [Kernel::V3_19, Kernel::V6_12] {
        let [symmetric, time, all] =
            [NONE, TIME, ALL].map(|a| units_beside_hogs(kernel, program.clone(), 4, a));
        assert!(10 * time > 12 * symmetric, "{kernel:?}: {time} after {symmetric}");
        assert!(10 * all > 12 * symmetric, "{kernel:?}: {all} after {symmetric}");
    }
}

/// VMs that do the same get the same, asymmetric or not; a whole VM never gains over another.
#[test]
fn vms_stay_equal() {
    for asym in PARTS {
        let mut r = run(4, 4, busy());
        r.arm.asym = asym;
        r.window_ms = 2000;
        let result = simulated(&setup(Kernel::V3_19, &r)).result;
        let cpu = result.vm.iter().map(|vm| vm.cpu_ns.iter().sum::<u64>());
        for ns in cpu {
            assert!(ns.abs_diff(result.window_ns) < result.window_ns / 20, "{asym:?}: {ns}");
        }
    }
}

#[test]
fn weights_twice_as_large_change_nothing() {
    let by = |factor: u32| {
        let weights = [100, 150, 400].map(|w| w * factor);
        let mut r = run(3, 4, common::sleeping(1500, 500)).weighted(&weights);
        r.cgroup = unspin_scenario::plan::CgroupLayout::Vm;
        r.arm.asym = ALL;
        vms(&setup(Kernel::V3_19, &r))
    };
    assert_eq!(by(1), by(2));
}

#[test]
fn parameters_that_contradict_each_other_are_refused() {
    let mut host = Host::lab(4, Kernel::V3_19);
    host.asym.latency_min_us = 0;
    let why = "asymmetric vCPUs: latency_min_us is 0";
    refused(&Setup::new(&host, &run(1, 4, busy())), why);
}
