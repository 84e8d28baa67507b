// SPDX-License-Identifier: MIT OR Apache-2.0
//! What IPI-aware yield promises (policy/ipi.h).

use super::{property, Api};
use proptest::prelude::*;
use unspin_policy::ipi::Slot;

fn slot(ready: u8, owes_answer: u8, preempted_at: u64) -> Slot {
    Slot { preempted_at, ready, owes_answer, ..Slot::default() }
}

/// Snapshots with many ties.
fn snapshots(max: usize) -> impl Strategy<Value = Vec<Slot>> {
    let time = prop_oneof![0..4u64, any::<u64>(), (0..2u64).prop_map(|d| u64::MAX - d)];
    let one = (0..3u8, 0..3u8, time).prop_map(|(ready, owes, at)| slot(ready, owes, at));
    prop::collection::vec(one, 0..max)
}

fn may(slots: &[Slot], caller: usize, excluded: u64, i: usize) -> bool {
    let free = i != caller && i < 64 && excluded >> i & 1 == 0;
    free && slots[i].ready != 0 && slots[i].owes_answer != 0
}

pub fn ipi_picks_who_owes_an_answer(api: &Api) {
    let input = (snapshots(66), 0..70usize, any::<u64>());
    property(1500, input, |(slots, caller, excluded)| {
        let may = |i: usize| may(&slots, caller, excluded, i);
        match api.ipi(&slots, caller, excluded) {
            Some(i) => assert!(slots.len() <= 64 && may(i), "{i} owes no answer or may not run"),
            None => assert!(slots.len() > 64 || !(0..slots.len()).any(may), "somebody does"),
        }
    });
    assert_eq!(api.ipi(&[], 0, 0), None);
    assert_eq!(api.ipi(&[slot(1, 1, 0)], 0, 0), None, "itself");
    assert_eq!(api.ipi(&[slot(1, 1, 0)], usize::MAX, 0), Some(0));
    assert_eq!(api.ipi(&[slot(1, 1, 0); 64], 0, 0), Some(1));
    assert_eq!(api.ipi(&[slot(1, 1, 0); 65], 0, 0), None);
    assert_eq!(api.ipi(&[slot(1, 1, 0); 64], 63, !0 >> 1), None, "all excluded");
}

pub fn ipi_takes_the_longest_preempted(api: &Api) {
    let input = (snapshots(40), 0..44usize);
    property(1500, input, |(slots, caller)| {
        let mut order: Vec<usize> = (0..slots.len())
            .map(|step| if caller < slots.len() { caller + 1 + step } else { step } % slots.len())
            .filter(|&i| may(&slots, caller, 0, i))
            .collect();
        // Stable: those preempted at once stay in the order from the caller on.
        order.sort_by_key(|&i| slots[i].preempted_at);
        let mut excluded = 0;
        for expected in order {
            assert_eq!(api.ipi(&slots, caller, excluded), Some(expected));
            excluded |= 1 << expected;
        }
        assert_eq!(api.ipi(&slots, caller, excluded), None, "they are one order, and all");
    });
}
