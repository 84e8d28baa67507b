// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fair scheduler's decisions on one pCPU: who runs next, and whether somebody must be
//! interrupted for it.
//!
//! After `kernel/sched/fair.c`: CFS as of 3.19 and 6.1 (virtual run time, slice, wake-up
//! granularity, the buddies `next` and `skip`), EEVDF as of 6.12 (lag, virtual deadline, run to
//! parity, the buddy `next` while it is eligible). Queues are short here (a task for each VM), so
//! they are lists walked whole, not trees. Not modelled: the buddy `last` (needs eight tasks),
//! and delayed dequeueing but for its effect on a sleeper's lag. Groups (`host/groups.rs`) give tasks weights.

mod rq;
#[cfg(test)]
mod tests;

pub use rq::RunQueue;

use crate::core::{Host, Kernel};
use crate::engine::VcpuId;

/// Weight of a task that nobody has weighted (NICE_0_LOAD).
pub const WEIGHT_DEFAULT: u64 = 1024;
/// Below this many tasks CFS shares one latency among them (sched_nr_latency).
const CFS_LATENCY_TASKS: u64 = 8;
pub const NONE: VcpuId = VcpuId::NONE;

/// What the scheduler keeps of a task. Virtual times are ns at the default weight.
#[derive(Debug, Clone, Copy)]
pub struct Entity {
    pub weight: u64,
    pub vruntime: i64,
    /// EEVDF: virtual deadline of the slice it is in.
    pub deadline: i64,
    /// EEVDF: lag kept while it sleeps.
    pub vlag: i64,
    /// EEVDF: deadline when it was put on the pCPU; still the same: it runs to parity.
    parity: i64,
    /// Time since it was put on the pCPU, ns.
    pub ran_ns: u64,
    /// CFS: how far behind the running task it must be to interrupt it when it wakes, ns.
    wakeup_ns: u64,
    /// EEVDF: its slice, ns.
    slice_ns: u64,
}

impl Entity {
    pub fn new(weight: u64, t: &Tunables) -> Entity {
        Entity {
            weight,
            vruntime: 0,
            deadline: 0,
            vlag: 0,
            parity: i64::MIN,
            ran_ns: 0,
            wakeup_ns: t.wakeup_ns,
            slice_ns: t.slice_ns,
        }
    }

    #[cfg(test)]
    pub fn wakeup_ns(&self) -> u64 {
        self.wakeup_ns
    }

    /// Its own latency, ns: CFS's wake-up granularity, EEVDF's slice (0.1 to 100 ms, as
    /// sched_setattr() has it).
    pub fn set_latency(&mut self, t: &Tunables, latency_ns: u64) {
        if t.eevdf {
            self.slice_ns = latency_ns.clamp(100_000, 100_000_000);
        } else {
            self.wakeup_ns = latency_ns;
        }
    }

    /// Another weight for one that is in no queue: a lag is kept in real time (reweight_entity()).
    pub fn set_weight(&mut self, t: &Tunables, weight: u64) {
        if t.eevdf && weight != self.weight {
            self.vlag = scaled(self.vlag, self.weight, weight);
        }
        self.weight = weight;
    }

    fn virtual_ns(&self, ns: u64) -> i64 {
        if self.weight == WEIGHT_DEFAULT {
            ns as i64
        } else {
            (u128::from(ns) * u128::from(WEIGHT_DEFAULT) / u128::from(self.weight)) as i64
        }
    }
}

/// `virtual_ns` of an entity whose weight changes.
fn scaled(virtual_ns: i64, from: u64, to: u64) -> i64 {
    (i128::from(virtual_ns) * i128::from(from) / i128::from(to)) as i64
}

/// Times the scheduler works with, ns.
#[derive(Debug, Clone, Copy)]
pub struct Tunables {
    eevdf: bool,
    latency_ns: u64,
    /// CFS: shortest slice; EEVDF: the slice.
    slice_ns: u64,
    wakeup_ns: u64,
    yields_count: bool,
    /// CFS forgets a buddy when it is picked (pick_next_entity()), since 5.14 only when it is put on
    /// the pCPU (set_next_entity()): there who yields and goes on is still skipped the next time.
    picks_forget: bool,
    /// EEVDF: a yielder gives up the rest of its slice in virtual time as well (upstream commit
    /// 79104becf42b, in 6.18 and in 6.12's stable series), not only its deadline.
    yields_forfeit: bool,
}

impl Tunables {
    /// As the host's kernel sets them at boot, the slice replaced where the host says so.
    /// `alone`: every vCPU is alone in a group of its own. There EEVDF's yield costs it nothing, as
    /// it moves the task within its group; CFS's skips the group as well (set_skip_buddy()).
    pub fn new(host: &Host, alone: bool) -> Tunables {
        let eevdf = host.kernel.is_eevdf();
        let yields_count = !(alone && eevdf);
        let own = host.scaled_ns(if eevdf { 700_000 } else { 750_000 });
        Tunables {
            eevdf,
            latency_ns: host.fair_period_ns(),
            slice_ns: host.slice_ns.unwrap_or(own),
            wakeup_ns: host.scaled_ns(1_000_000),
            yields_count,
            picks_forget: matches!(host.kernel, Kernel::Proposal2012 | Kernel::V3_19),
            yields_forfeit: host.kernel != Kernel::V6_13,
        }
    }
}
