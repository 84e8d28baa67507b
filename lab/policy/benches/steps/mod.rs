// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choices of a vCPU whose instructions are counted.

#![allow(dead_code)] // the bench and the test use a part each

#[path = "../../tests/common/steps.rs"]
mod counting;

pub use counting::instructions;

use crate::gang_load::scattered;
use std::hint::black_box;
use unspin_policy::hvs::{Category, Flags, Look, Slot, Waiting, SLOTS_MAX};
use unspin_policy::sys;

/// All but vCPU 0 are ready: three quarters lock waiters, the last a resource waiter.
pub fn ready(count: usize) -> Vec<Slot> {
    let category = |i| if i % 4 != 3 { Category::LockWaiter } else { Category::ResourceWaiter };
    (0..count).map(|i| Slot::ready(category(i), scattered(i))).collect()
}

/// The module's decision at an exit of vCPU 0, without reading the other vCPUs.
pub fn pick(slots: &[Slot]) -> impl FnMut() + '_ {
    move || {
        let slots = black_box(slots);
        // SAFETY: as many slots are there to read.
        black_box(unsafe {
            sys::hvs_pick(slots.as_ptr(), slots.len() as u32, 0, 0, Flags::ADDED.0)
        });
    }
}

/// The same in a VM of more than 64 vCPUs: which vCPUs to consider, and the choice among them.
pub fn pick_looked(slots: &[Slot]) -> impl FnMut() + '_ {
    let mut waiting = Waiting::new(slots.len() as u32);
    for (vcpu, slot) in slots.iter().enumerate().skip(1) {
        waiting.stops(vcpu, Category::from_number(slot.category).expect("a category"));
    }
    let seen = [Slot { shared: 1, ..slots[1] }; SLOTS_MAX];
    move || {
        let mut look = Look::NONE;
        let flags = Flags::ADDED.0;
        // SAFETY: references are valid, and 64 slots are there to read.
        black_box(unsafe {
            sys::hvs_look(&mut waiting, slots.len() as u32, 0, flags, &mut look);
            sys::hvs_pick_looked(black_box(&seen).as_ptr(), SLOTS_MAX as u32, &look, 0, flags)
        });
    }
}
