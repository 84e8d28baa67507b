// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one cgroup a VM does to a VM whose vCPUs sleep, beside VMs that compute.

use crate::common::{constant, run, step, vms};
use unspin_scenario::plan::{CgroupLayout, Op, Run};
use unspin_scenario::result::VmResult;
use unspin_sim::{Host, Kernel, Setup};

const VCPUS: u32 = 16;

/// A VM of which `busy` vCPUs compute for 0.1 ms and sleep for 2 ms, the others only sleep, beside
/// three VMs that compute on every pCPU.
fn beside_hogs(kernel: Kernel, cgroup: CgroupLayout, busy: u32) -> Vec<VmResult> {
    let program =
        vec![step(Op::Compute, constant(240_000), 0), step(Op::Block, constant(2_000_000), 0)];
    let mut r = Run { cgroup, window_ms: 400, warmup_ms: 200, ..run(4, VCPUS, program) };
    for hog in &mut r.vms[1..] {
        hog.program = vec![step(Op::Compute, constant(2_400_000), 0)];
    }
    if busy < VCPUS {
        r.vms[0].vcpus = busy;
        r.vms[0].pin.truncate(busy as usize);
    }
    vms(&Setup::new(&Host::server(VCPUS, kernel), &r))
}

/// How long it waits for a pCPU each time it wakes, ms.
fn wait_ms(vm: &VmResult) -> f64 {
    let units: u64 = vm.units.iter().sum();
    vm.attribution.unwrap().waiting_ns as f64 / units as f64 / 1e6
}

#[test]
fn who_wakes_waits_for_a_tick_in_a_group_of_many_and_for_nobody_alone() {
    for kernel in [Kernel::V3_19, Kernel::V6_1] {
        let wait = |cgroup, busy| wait_ms(&beside_hogs(kernel, cgroup, busy)[0]);
        let (flat, many) = (wait(CgroupLayout::Flat, 16), wait(CgroupLayout::Vm, 16));
        let (two, vcpu) = (wait(CgroupLayout::Vm, 2), wait(CgroupLayout::Vcpu, 16));
        assert!(flat < 0.2, "{flat}");
        // Its tick comes within 4 ms, later if whoever runs has not had its 3 ms by then.
        assert!((1.0..6.0).contains(&many), "{many}");
        assert!(two < many / 3.0, "{two} of {many}");
        assert_eq!(many, vcpu);
    }
}

#[test]
fn vms_that_compute_have_equal_shares_whatever_the_layout() {
    for kernel in [Kernel::V3_19, Kernel::V6_12] {
        for cgroup in [CgroupLayout::Flat, CgroupLayout::Vm] {
            let vms = beside_hogs(kernel, cgroup, 16);
            let cpu: Vec<u64> = vms[1..].iter().map(|vm| vm.cpu_ns.iter().sum()).collect();
            let (least, most) = (cpu.iter().min().unwrap(), cpu.iter().max().unwrap());
            assert!((most - least) as f64 <= 0.03 * *most as f64, "{kernel:?} {cpu:?}");
        }
    }
}
