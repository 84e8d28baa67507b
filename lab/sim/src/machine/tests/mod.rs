// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole machines, seen from inside.

mod asym;
mod monitor;
mod socket;
mod turns;

use super::Sim;
use crate::core::{Class, State};
use crate::engine::{PcpuId, VcpuId};
use crate::setup::tests::two_vms;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// The check must see each of these.
#[test]
fn the_check_sees_what_it_is_for() {
    type Fault = fn(&mut Sim);
    let faults: [(&str, Fault); 5] = [
        ("a lost nanosecond", |s| s.core.vcpus[VcpuId(0)].ledger.time_ns[0] -= 1),
        ("a nanosecond in another class", |s| {
            let v = s.core.vcpus.iter_mut().find(|v| v.on.state != State::Halted).unwrap();
            v.ledger.time_ns[Class::Waiting as usize] += 1;
            v.ledger.time_ns[Class::Useful as usize] -= 1;
        }),
        ("a vCPU in two queues", |s| {
            let v = s.host.queues[PcpuId(0)].current;
            s.host.queues[PcpuId(1)].waiting.push(v);
        }),
        ("a vCPU in none", |s| {
            s.host.queues.iter_mut().find(|q| !q.waiting.is_empty()).unwrap().waiting.clear();
        }),
        ("a pCPU that idled twice", |s| s.core.pcpus[PcpuId(1)].idle_ns += 1),
    ];
    for (what, fault) in faults {
        let mut sim = two_vms().build().unwrap();
        sim.run_until(30_000_000);
        fault(&mut sim);
        let seen = catch_unwind(AssertUnwindSafe(|| sim.check())).is_err();
        assert!(seen, "{what} goes unseen");
    }
}

#[test]
fn skewed_ticks_lie_within_half_a_period() {
    let sim = two_vms().build().unwrap();
    let offsets: Vec<u64> = (0..4).map(|p| sim.host.tick_offset_ns(&sim.core, PcpuId(p))).collect();
    assert_eq!(offsets, [0, 500_000, 1_000_000, 1_500_000]);
}
