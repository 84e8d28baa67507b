// SPDX-License-Identifier: MIT OR Apache-2.0
//! First come, first served, with spinning waiters (core/locks/ticket.h, core/locks/mcs.h).
//!
//! The first waiter has the lock as soon as it is released, even while it has no pCPU. This is lock
//! waiter preemption.

use super::super::state::Guest;
use crate::core::Core;
use crate::engine::LockId;

impl Guest {
    pub(super) fn fifo_release(&mut self, core: &mut Core, index: LockId) {
        let lock = &mut self.locks[index];
        lock.releases += 1;
        let next = lock.head;
        self.hand_over(core, next, index);
    }
}
