// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to pCPUs to reschedule: by an interrupt, or at a tick.

use super::fair::NONE;
use crate::core::{Core, Effect};
use crate::engine::{Event, PcpuId, VcpuId};

/// Arms the next tick of `p` at `ns` or earlier.
pub fn arm_tick_by(core: &mut Core, p: PcpuId, ns: u64) {
    let timer = Event::Tick(p);
    if core.events.time_of(timer).is_some_and(|at| at > ns) {
        core.events.arm(timer, ns.max(core.now_ns + 1));
    }
}

/// Asks `p`, where `current` runs, to reschedule; an earlier request stands.
#[inline]
pub fn ask_reschedule(core: &mut Core, p: PcpuId, current: VcpuId) {
    if current != NONE {
        if core.vcpus[current].exit.need_resched {
            return;
        }
        // Its own interrupt already makes it look; no other is sent.
        if p == core.interrupted {
            core.vcpus[current].exit.need_resched = true;
            core.effects.push(Effect::Rearm(current));
            return;
        }
    }
    let timer = Event::Reschedule(p);
    if core.events.time_of(timer).is_none() {
        core.events.arm(timer, core.now_ns + core.prices.reschedule_ns);
    }
}
