// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of VMs, which the programs use as indices.

use std::collections::{BTreeMap, VecDeque};

/// The number of each VM. A number that was released is reused as late as possible, because a program that
/// is running may still count for the old VM.
pub struct Numbers {
    of: BTreeMap<u32, u32>,
    free: VecDeque<u32>,
}

impl Numbers {
    /// Numbers below `max`; none is in use.
    pub fn new(max: u32) -> Numbers {
        Numbers { of: BTreeMap::new(), free: (0..max).collect() }
    }

    /// By process id.
    pub fn all(&self) -> &BTreeMap<u32, u32> {
        &self.of
    }

    /// The number of the VM of this process, if it has one.
    pub fn get(&self, pid: u32) -> Option<u32> {
        self.of.get(&pid).copied()
    }

    /// Assigns a number to the VM of this process, which must have none. Takes the number that was released
    /// first among those that no CPU uses (`in_use`), otherwise the one that was released first. `None` if
    /// all are assigned.
    pub fn give(&mut self, pid: u32, in_use: impl Fn(u32) -> bool) -> Option<u32> {
        let at = self.free.iter().position(|number| !in_use(*number)).unwrap_or(0);
        let number = self.free.remove(at)?;
        self.of.insert(pid, number);
        Some(number)
    }

    /// Releases the numbers of all VMs except those to keep, and returns their processes.
    pub fn keep(&mut self, is_kept: impl Fn(u32) -> bool) -> Vec<u32> {
        let gone: Vec<u32> = self.of.keys().copied().filter(|pid| !is_kept(*pid)).collect();
        self.free.extend(gone.iter().filter_map(|pid| self.of.remove(pid)));
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// For any order of VMs, and any numbers that CPUs still use.
        #[test]
        fn a_number_rests_as_long_as_it_can(
            steps in prop::collection::vec((0..12u32, any::<bool>(), 0..8u32), 1..80),
        ) {
            let mut numbers = Numbers::new(8);
            // The time at which each number was released.
            let mut given_back = [0; 8];
            for (at, (pid, comes, in_use)) in steps.into_iter().enumerate() {
                let free = |numbers: &Numbers, of: u32| !numbers.all().values().any(|its| *its == of);
                if comes && numbers.get(pid).is_none() {
                    let all: Vec<u32> = (0..8).filter(|number| free(&numbers, *number)).collect();
                    let first = |of: &&u32| given_back[**of as usize];
                    let rested = all.iter().filter(|number| **number != in_use).min_by_key(first);
                    let expected = rested.or(all.iter().min_by_key(first)).copied();
                    prop_assert_eq!(numbers.give(pid, |number| number == in_use), expected);
                } else if !comes {
                    let before = numbers.all().clone();
                    let gone = numbers.keep(|other| other != pid);
                    prop_assert_eq!(&gone[..], if before.contains_key(&pid) { vec![pid] } else { vec![] });
                    if let Some(number) = before.get(&pid) {
                        given_back[*number as usize] = at + 1;
                    }
                }
                let given: std::collections::BTreeSet<u32> = numbers.all().values().copied().collect();
                prop_assert_eq!(given.len(), numbers.all().len(), "each has its own");
            }
        }
    }
}
