// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test-and-set (core/locks/tas.h): no order. At a release any of the vCPUs whose guests spin at that
//! moment may get it. The others check when they return.

use super::super::state::Guest;
use crate::core::Core;
use crate::engine::{LockId, VcpuId};

impl Guest {
    pub(super) fn tas_release(&mut self, core: &mut Core, index: LockId) {
        self.locks[index].releases += 1;
        let next = self.draw_spinner(core, index, |_| true);
        if next != VcpuId::NONE {
            self.hand_over(core, next, index);
        }
    }
}
