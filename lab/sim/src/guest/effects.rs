// SPDX-License-Identifier: MIT OR Apache-2.0
//! The effects that a guest reports to its host.

use super::state::Guest;
use crate::core::{Core, Effect};
use crate::engine::VcpuId;

impl Guest {
    /// `v`, accounted for, sleeps and is to run; `by` has sent it an interrupt.
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

    /// The action of `v` ends at another time. Queued behind earlier effects, so that events of the
    /// same time keep their order.
    #[inline]
    pub(super) fn touch(&mut self, core: &mut Core, v: VcpuId) {
        if core.effects.is_empty() {
            self.rearm(core, v);
        } else {
            core.effects.push(Effect::Rearm(v));
        }
    }
}
