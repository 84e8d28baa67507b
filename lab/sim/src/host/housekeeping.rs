// SPDX-License-Identifier: MIT OR Apache-2.0
//! The background work of a host: its own tasks, and timer interrupts that come late.
//!
//! The numbers are those of an idle computer with eight CPUs in the kernel's documentation
//! (Documentation/trace/osnoise-tracer.rst and timerlat-tracer.rst).

use crate::core::Core;
use crate::engine::{Event, PcpuId, Rng, Table};

/// Threads that interrupted a CPU: 88 in eight seconds.
const TASKS_PER_S: u64 = 11;
/// The longest task, relative to the mean one of a CPU with the usual loss.
const LONGEST: u32 = 5;
/// Lateness of timer interrupts: 932, 2833, 769 and 935 ns. On a busy CPU it is ten times as large.
const LATE_NS: u32 = 1_367;
const LATEST_NS: u32 = 10 * LATE_NS;
/// The stream numbers are different from those of vCPUs and locks.
const FIRST_STREAM: u32 = 1 << 30;

/// A host's own tasks, each pCPU's at random.
pub struct Housekeeping {
    each: Table<PcpuId, Rng>,
    /// Mean length of a task, ns.
    mean_ns: u32,
}

impl Housekeeping {
    /// Tasks that use this many millionths of the time of each of `pcpus`.
    pub fn new(pcpus: u32, ppm: u32, seed: u64) -> Housekeeping {
        let rngs: Vec<Rng> = (0..pcpus).map(|p| Rng::new(seed, FIRST_STREAM + p)).collect();
        Housekeeping { each: rngs.into(), mean_ns: (u64::from(ppm) * 1000 / TASKS_PER_S) as u32 }
    }

    /// The delay of the next tick of `p`, ns.
    pub(super) fn late_ns(&mut self, p: PcpuId) -> u64 {
        u64::from(self.each[p].exp(LATE_NS, LATEST_NS))
    }

    /// The next task of `p`.
    pub(super) fn arm(&mut self, core: &mut Core, p: PcpuId) {
        let mean_ns = (1_000_000_000 / TASKS_PER_S) as u32;
        let after_ns = u64::from(self.each[p].exp(mean_ns, u32::MAX)).max(1);
        core.events.arm(Event::HostTask(p), core.now_ns + after_ns);
    }

    /// How long a task of `p` runs, ns.
    pub(super) fn length_ns(&mut self, p: PcpuId) -> u64 {
        u64::from(self.each[p].exp(self.mean_ns, self.mean_ns.saturating_mul(LONGEST)))
    }
}
