// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fair scheduler's state of a task.

use super::tunables::Tunables;

/// Default weight of a task (NICE_0_LOAD).
pub const WEIGHT_DEFAULT: u64 = 1024;

/// The scheduler's state of a task. Virtual times are in ns at the default weight.
#[derive(Debug, Clone, Copy)]
pub struct Entity {
    pub weight: u64,
    pub vruntime: i64,
    /// EEVDF: virtual deadline of the slice it is in.
    pub deadline: i64,
    /// EEVDF: its lag when it fell asleep.
    pub vlag: i64,
    /// EEVDF: its deadline when it was put on the pCPU. While that is unchanged, it runs to parity.
    pub(super) parity: i64,
    /// Time since it was put on the pCPU, ns.
    pub ran_ns: u64,
    /// CFS: how far behind the running task it must be to interrupt it when it wakes, ns.
    pub(super) wakeup_ns: u64,
    /// EEVDF: its slice, ns.
    pub(super) slice_ns: u64,
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

    /// Sets its own latency, ns: CFS's wake-up granularity, EEVDF's slice (0.1 to 100 ms, the range
    /// of sched_setattr()). If it did not wake up, it has the default latency.
    pub fn set_latency(&mut self, t: &Tunables, latency_ns: u64, woke: bool) {
        if t.eevdf {
            let own = if woke { latency_ns } else { t.slice_ns };
            self.slice_ns = own.clamp(100_000, 100_000_000);
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

    /// It was taken off its pCPU for a task that is in no queue, and is chosen among those that wait.
    pub fn was_put(&mut self) {
        self.parity = i64::MIN;
        self.ran_ns = 0;
    }

    #[inline]
    pub(super) fn virtual_ns(&self, ns: u64) -> i64 {
        if self.weight == WEIGHT_DEFAULT {
            ns as i64
        } else {
            (u128::from(ns) * u128::from(WEIGHT_DEFAULT) / u128::from(self.weight)) as i64
        }
    }
}

/// `virtual_ns` of an entity whose weight changes.
#[inline]
pub fn scaled(virtual_ns: i64, from: u64, to: u64) -> i64 {
    (i128::from(virtual_ns) * i128::from(from) / i128::from(to)) as i64
}
