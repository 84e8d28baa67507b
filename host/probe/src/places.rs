// SPDX-License-Identifier: MIT OR Apache-2.0
//! The maps in which the programs find a thread's slot and a process's VM. They look into an array first, by
//! the place of a thread or process, and into a hash only if the array says so.

use crate::error::Error;
use crate::layout::{First, PLACES};
use crate::maps::Table;
use libbpf_rs::Object;

pub struct Places {
    places: Table<First>,
    slots: Table<u32>,
    vms: Table<u32>,
}

impl Places {
    pub fn of(object: &Object) -> Result<Places, Error> {
        let (places, slots) = (Table::of(object, "places")?, Table::of(object, "slots")?);
        Ok(Places { places, slots, vms: Table::of(object, "vms")? })
    }

    /// Assigns this slot to a thread without one.
    pub fn enter(&self, tid: u32, slot: u32) -> Result<(), Error> {
        let first = self.at(tid)?;
        if first.tid != 0 {
            self.slots.put(tid, &slot)?;
        }
        self.places.put(tid % PLACES, &entered(first, tid, slot))
    }

    /// Removes a thread's slot.
    pub fn leave(&self, tid: u32) -> Result<(), Error> {
        self.places.put(tid % PLACES, &left(self.at(tid)?, tid))?;
        self.slots.remove(tid);
        Ok(())
    }

    /// Makes a process the VM with this number. It must not be a VM yet.
    pub fn enter_vm(&self, pid: u32, number: u32) -> Result<(), Error> {
        self.vms.put(pid, &number)?;
        let first = self.at(pid)?;
        self.places.put(pid % PLACES, &First { vms: first.vms + 1, ..first })
    }

    /// Makes a process no longer a VM.
    pub fn leave_vm(&self, pid: u32) -> Result<(), Error> {
        self.vms.remove(pid);
        let first = self.at(pid)?;
        self.places.put(pid % PLACES, &First { vms: first.vms.saturating_sub(1), ..first })
    }

    fn at(&self, tid: u32) -> Result<First, Error> {
        Ok(self.places.get(tid % PLACES)?.unwrap_or_default())
    }
}

/// A place after a thread was added.
fn entered(first: First, tid: u32, slot: u32) -> First {
    match first.tid {
        0 => First { tid, slot, ..first },
        _ => First { others: first.others + 1, ..first },
    }
}

/// A place after one of its threads was removed.
fn left(first: First, tid: u32) -> First {
    match first.tid == tid {
        true => First { tid: 0, slot: 0, ..first },
        false => First { others: first.others.saturating_sub(1), ..first },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// `slot_of()` in C.
    fn found(places: &BTreeMap<u32, First>, slots: &BTreeMap<u32, u32>, tid: u32) -> Option<u32> {
        let first = places.get(&(tid % PLACES)).copied().unwrap_or_default();
        if first.tid == tid {
            return Some(first.slot);
        }
        slots.get(&tid).copied().filter(|_| first.others > 0)
    }

    proptest! {
        /// For any threads that share a place, in any order.
        #[test]
        fn each_thread_has_its_slot(steps in proptest::collection::vec((1..4u32, 1..4u32), 1..60)) {
            let (mut places, mut slots) = (BTreeMap::new(), BTreeMap::new());
            let mut expected: BTreeMap<u32, u32> = BTreeMap::new();
            for (at, (place, round)) in steps.into_iter().enumerate() {
                let (tid, slot) = (place + round * PLACES, at as u32 + 1);
                let first: First = places.get(&place).copied().unwrap_or_default();
                if expected.remove(&tid).is_some() {
                    places.insert(place, left(first, tid));
                    slots.remove(&tid);
                } else {
                    if first.tid != 0 {
                        slots.insert(tid, slot);
                    }
                    places.insert(place, entered(first, tid, slot));
                    expected.insert(tid, slot);
                }
                for tid in (1..4).flat_map(|p| (1..4).map(move |r| p + r * PLACES)) {
                    prop_assert_eq!(found(&places, &slots, tid), expected.get(&tid).copied());
                }
            }
        }
    }
}
