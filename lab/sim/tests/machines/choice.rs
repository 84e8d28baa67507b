// SPDX-License-Identifier: MIT OR Apache-2.0
//! Targets of the module's selection: woken siblings, vCPUs that owe answers, displaced vCPUs.

use crate::common::{arm, contended, run, setup, sleeping, total, vms};
use unspin_scenario::plan::{CgroupLayout, Run, Step, Window, YieldTo};
use unspin_scenario::result::ModuleStats;
use unspin_sim::{Host, Kernel, Setup};
use unspin_uapi::Variant;

/// Counts of all VMs together.
fn counts(kernel: Kernel, run: &Run) -> impl Fn(fn(&ModuleStats) -> u64) -> u64 {
    let vms = vms(&setup(kernel, run));
    move |of| total(&vms, of)
}

fn under(vms: u32, program: Vec<Step>, yield_to: YieldTo) -> Run {
    Run { arm: arm(Window::Fixed { cycles: 4096 }, yield_to), ..run(vms, 4, program) }
}

#[test]
fn woken_siblings_are_yielded_to() {
    for kernel in [Kernel::V6_1, Kernel::V6_12] {
        let awake = counts(kernel, &under(3, contended(1000, 400), YieldTo::HVS));
        assert_eq!(awake(|m| m.yields_woken), 0, "nobody sleeps");
        let slept = counts(kernel, &under(3, sleeping(1000, 400), YieldTo::HVS));
        assert!(slept(|m| m.yields_woken) > 0, "{kernel:?}");
        let stock = counts(kernel, &under(3, sleeping(1000, 400), YieldTo::Stock));
        assert_eq!(stock(|m| m.yields_woken), 0, "KVM's own are not the module's");
    }
}

const PAPERS: [Variant; 4] = [Variant::PAPER, Variant::CPTH_R, Variant::CPTH_L, Variant::CCH];

#[test]
fn the_papers_lists_have_the_preempted_only() {
    for kernel in [Kernel::V6_1, Kernel::V6_12] {
        for variant in PAPERS {
            let slept = under(3, sleeping(1000, 400), YieldTo::Module(variant));
            let of = counts(kernel, &slept);
            assert_eq!(of(|m| m.yields_woken), 0, "{kernel:?} {}", variant.name());
        }
    }
}

/// A VM that has used up its quota: the scheduler refuses yields to its vCPUs.
#[test]
fn one_exit_selects_one_candidate_in_the_papers() {
    let capped = |variant| {
        let run = Run {
            cgroup: CgroupLayout::Vm,
            window_ms: 500,
            ..under(3, contended(1000, 400), YieldTo::Module(variant)).weighted(&[100, 100, 600])
        };
        let host = Host { capped: true, ..Host::lab(4, Kernel::V6_12) };
        let vms = vms(&Setup::new(&host, &run));
        let of = |of: fn(&ModuleStats) -> u64| total(&vms, of);
        let took = of(|m| m.yields_resource_waiter + m.yields_lock_waiter + m.yields_yielded);
        (of(|m| m.yields_failed), took, of(|m| m.yields_none), of(|m| m.ple_exits))
    };
    for variant in PAPERS {
        let (failed, took, none, exits) = capped(variant);
        assert!(failed > 0 && failed <= none, "{}: {failed} of {none}", variant.name());
        // A refused exit found no target; exits in progress at the ends are the rest.
        assert!((took + none).abs_diff(exits) <= 24, "{}: {took} {none} {exits}", variant.name());
    }
}

/// KVM of 3.19 notes only who was preempted.
#[test]
fn woken_siblings_are_not_known_on_3_19() {
    let slept = counts(Kernel::V3_19, &under(3, sleeping(1000, 400), YieldTo::HVS));
    assert_eq!(slept(|m| m.yields_woken), 0);
    assert!(slept(|m| m.yields_lock_waiter) > 0, "the preempted are");
}

/// Under the paper's HVS most resource waiters are those that a yield took the core from. The other
/// reading has few of them. With the quorum rule few are displaced.
#[test]
fn who_was_displaced_is_no_resource_waiter() {
    let share = |variant| {
        let (mut resource, mut yielded) = (0, 0);
        for seed in 1..=5 {
            let run = Run { seed, ..under(3, contended(1000, 400), YieldTo::Module(variant)) };
            let of = counts(Kernel::V6_1, &run);
            resource += of(|m| m.yields_resource_waiter);
            yielded += of(|m| m.yields_yielded);
        }
        resource as f64 / (resource + yielded) as f64
    };
    let readings =
        [(Variant::PAPER, Variant::PAPER_DISPLACED, 0.2), (Variant::HVS, Variant::DISPLACED, 0.8)];
    for (are, are_not, at_most) in readings {
        let (before, after) = (share(are), share(are_not));
        assert!(after < before * at_most, "{}: {before:.2} to {after:.2}", are.name());
    }
}
