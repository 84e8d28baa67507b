// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capped shares under the fair scheduler, and AMD's pause filter.

use crate::common::{constant, contended, refused, run, simulated, step, sum_ns, total, vms};
use unspin_scenario::plan::{CgroupLayout, Op};
use unspin_scenario::result::VmResult;
use unspin_sim::{Host, Kernel, Setup};

const KERNELS: [Kernel; 3] = [Kernel::V3_19, Kernel::V6_1, Kernel::V6_12];

/// VMs of four vCPUs that compute, and one that sleeps, on four pCPUs.
fn shares(kernel: Kernel, capped: bool, busy: u32, idle: u32, weights: &[u32]) -> Vec<f64> {
    let compute = vec![step(Op::Compute, constant(100_000), 0)];
    let mut r = run(busy + idle, 4, compute).weighted(weights);
    r.cgroup = CgroupLayout::Vm;
    (r.warmup_ms, r.window_ms) = (100, 1000);
    for sleeper in &mut r.vms[busy as usize..] {
        sleeper.program = vec![step(Op::Block, constant(20_000_000), 0)];
    }
    let host = Host { capped, ..Host::lab(4, kernel) };
    let made = simulated(&Setup::new(&host, &r)).result;
    let of = |vm: &VmResult| {
        let spent = vm.attribution.unwrap();
        assert_eq!(sum_ns(&spent), made.window_ns * 4);
        vm.cpu_ns.iter().sum::<u64>() as f64 / (made.window_ns * 4) as f64
    };
    made.vm.iter().map(of).collect()
}

fn near(is: f64, wanted: f64) {
    assert!((is - wanted).abs() < 0.02, "{is}, not {wanted}");
}

#[test]
fn a_capped_vm_has_its_share_whoever_sleeps() {
    for kernel in KERNELS {
        // One of four, alone but for three that sleep: a quarter, where it could have all.
        near(shares(kernel, true, 1, 3, &[])[0], 0.25);
        assert!(shares(kernel, false, 1, 3, &[])[0] > 0.9);
        // Equation 2 of HPDC 2011: weight over all weights.
        let weighted = shares(kernel, true, 2, 1, &[100, 300, 400]);
        near(weighted[0], 0.125);
        near(weighted[1], 0.375);
    }
}

#[test]
fn a_cap_that_nobody_reaches_changes_nothing_much() {
    for kernel in KERNELS {
        for (capped, free) in
            shares(kernel, true, 2, 0, &[]).into_iter().zip(shares(kernel, false, 2, 0, &[]))
        {
            near(capped, free);
        }
    }
}

#[test]
fn caps_without_cgroups_are_refused() {
    let host = Host { capped: true, ..Host::lab(4, Kernel::V6_12) };
    refused(&Setup::new(&host, &run(1, 4, contended(1000, 400))), "caps need cgroups");
}

fn exits(host: &Host, cpl: u8) -> u64 {
    let r = run(2, 4, contended(1000, 4000)).with(|vm| vm.cpl = cpl);
    total(&vms(&Setup::new(host, &r)), |m| m.ple_exits)
}

#[test]
fn a_pause_filter_sees_user_space_and_counts_pauses() {
    let intel = Host::lab(4, Kernel::V6_12);
    let amd = intel.clone().with_pause_filter();
    assert_eq!(exits(&intel, 3), 0);
    assert!(exits(&amd, 3) > 100);
    // 3000 turns of 8 cycles; where a turn takes twice as long so does the window.
    assert_eq!(amd.window.base_cycles, 24_000);
    let mut slow = intel.clone();
    slow.costs.pause_loop_cycles *= 2;
    assert_eq!(slow.with_pause_filter().window.base_cycles, 48_000);
    // Longer than Intel's 4096 cycles, so fewer exits.
    assert!(exits(&amd, 0) < exits(&intel, 0));
}
