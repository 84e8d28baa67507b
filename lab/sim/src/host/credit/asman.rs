// SPDX-License-Identifier: MIT OR Apache-2.0
//! How ASMan's host learns about VMs whose vCPUs wait for each other (HPDC 2011, sections 3.3, 4.2
//! and 4.3): from the guest's Monitoring Module, or, with an unchanged guest, from its PLE exits.

use super::state::Credit;
use crate::core::Core;
use crate::engine::{VcpuId, VmId};
use unspin_scenario::plan::Coscheduling;

/// Spinning continues as long as a PLE exit follows the last one within this many windows of the
/// vCPU's time: one for spinning, one for the time in between.
const BURST_WINDOWS: u64 = 2;

/// Long waits belong to a cluster if at most this many passes of locks lie between them.
pub const NEIGHBOURS: u64 = 16;

impl Credit {
    /// An over-threshold wait in `vm` was reported (Algorithm 2).
    pub fn adjusting_event(&mut self, vm: VmId, now_ns: u64) {
        let (state, stats) = (&mut self.learned[vm], &mut self.stats[vm]);
        let now_us = now_ns / 1000;
        let was_until_us = state.high_until_us.max(now_us);
        let draw = (self.draws[vm].next() >> 32) as u32;
        state.event(&self.learner, now_us, draw);
        stats.events += 1;
        stats.high_us += state.high_until_us.saturating_sub(was_until_us);
    }

    /// An over-threshold wait for a spin-lock in `vm` is over. `passes`: how often its locks were
    /// passed so far.
    pub fn long_wait(&mut self, vm: VmId, passes: u64) {
        let before = std::mem::replace(&mut self.long_at[vm], passes);
        let stats = &mut self.stats[vm];
        stats.long_waits += 1;
        stats.long_neighbours += u64::from(passes.wrapping_sub(before) <= NEIGHBOURS);
    }

    /// A PLE exit of `v`, the host's only sign of a wait: the windows of consecutive exits add up.
    pub fn watch_ple_exit(&mut self, core: &Core, v: VcpuId, window_cycles: u32) {
        if self.coscheduling != Coscheduling::VcrdPle {
            return;
        }
        let vcpu = &core.vcpus[v];
        let burst = &mut self.bursts[v];
        let cpu_ns = vcpu.ledger.cpu_ns();
        let between_ns = BURST_WINDOWS * vcpu.pauses.window_ns + core.prices.switch_ns;
        let goes_on = cpu_ns - burst.at_cpu_ns <= between_ns;
        burst.at_cpu_ns = cpu_ns;
        burst.spun_cycles = if goes_on { burst.spun_cycles } else { 0 };
        burst.spun_cycles += u64::from(window_cycles);
        if self.learner.is_over_threshold(burst.spun_cycles) {
            burst.spun_cycles = 0;
            self.adjusting_event(vcpu.vm, core.now_ns);
        }
    }
}
