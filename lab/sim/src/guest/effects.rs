// SPDX-License-Identifier: MIT OR Apache-2.0
//! The effects that a guest reports to its host.

use super::state::Guest;
use crate::core::{Core, Effect};
use crate::engine::VcpuId;

impl Guest {
    /// Wakes `v`, which is accounted for and asleep; `by` has sent it an interrupt.
    #[inline]
    pub(super) fn wake(&mut self, core: &mut Core, v: VcpuId) {
        core.effects.push(Effect::Wake(v));
    }

    #[inline]
    pub(super) fn note_waker(&mut self, core: &mut Core, woken: VcpuId, by: VcpuId) {
        if self.tells_wakers {
            core.effects.push(Effect::Waker { woken, by });
        }
    }

    /// The end of the action of `v` has changed. Queued after earlier effects, so that events with
    /// the same time keep their order.
    #[inline]
    pub(super) fn touch(&mut self, core: &mut Core, v: VcpuId) {
        if core.effects.is_empty() {
            self.rearm(core, v);
        } else {
            core.effects.push(Effect::Rearm(v));
        }
    }
}
