// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test-and-set (locks/tas.h): no order. A release lets any of those have it whose guests spin at
//! that moment; the others look when they return.

use super::{Lock, Sim};
use crate::sched::NONE;

impl Sim {
    /// Any of those whose guests spin right now; [`NONE`]: the lock stays free.
    pub(super) fn tas_next(&mut self, index: u32) -> u32 {
        let Lock { head, .. } = self.locks[index as usize];
        let mut spinning = 0;
        let mut v = head;
        while v != NONE {
            self.account(v);
            spinning += u32::from(self.is_in_guest(v));
            v = self.vcpus[v as usize].behind;
        }
        if spinning == 0 {
            return NONE;
        }
        let mut left = self.tas_rng.uniform(0, spinning - 1);
        let mut v = head;
        loop {
            if self.is_in_guest(v) {
                if left == 0 {
                    return v;
                }
                left -= 1;
            }
            v = self.vcpus[v as usize].behind;
        }
    }
}
