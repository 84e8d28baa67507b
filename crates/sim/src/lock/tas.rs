// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test-and-set (locks/tas.h): no order. A release lets any of those have it whose guests spin at
//! that moment; the others look when they return.

use super::Sim;
use crate::engine::LockId;
use crate::sched::NONE;

impl Sim {
    pub(super) fn tas_release(&mut self, index: LockId) {
        self.locks[index].granted += 1;
        let next = self.draw_spinner(index, |_| true);
        if next != NONE {
            self.hand_over(next, index);
        }
    }
}
