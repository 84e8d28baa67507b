// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of VMs, by which the programs count.

use std::collections::{BTreeMap, VecDeque};

/// Which number each VM has. A number that was given back is the last to be given again: a program that runs
/// now may still count for the old VM.
pub struct Numbers {
    of: BTreeMap<u32, u32>,
    free: VecDeque<u32>,
}

impl Numbers {
    /// Numbers below `max`; none is given yet.
    pub fn new(max: u32) -> Numbers {
        Numbers { of: BTreeMap::new(), free: (0..max).collect() }
    }

    /// By the VM's process.
    pub fn all(&self) -> &BTreeMap<u32, u32> {
        &self.of
    }

    /// The number of the VM of this process; `None`: it has none.
    pub fn get(&self, pid: u32) -> Option<u32> {
        self.of.get(&pid).copied()
    }

    /// Gives a number to the VM of this process, which has none: the one that was given back first of those that
    /// no CPU has by now, as `in_use` says; or else the one that was given back first. `None`: there is none.
    pub fn give(&mut self, pid: u32, in_use: impl Fn(u32) -> bool) -> Option<u32> {
        let at = self.free.iter().position(|number| !in_use(*number)).unwrap_or(0);
        let number = self.free.remove(at)?;
        self.of.insert(pid, number);
        Some(number)
    }

    /// Takes back the numbers of all VMs but these, and returns their processes.
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
        /// Whichever VMs come and go, and whatever CPUs still have.
        #[test]
        fn a_number_rests_as_long_as_it_can(
            steps in prop::collection::vec((0..12u32, any::<bool>(), 0..8u32), 1..80),
        ) {
            let mut numbers = Numbers::new(8);
            // When each number was given back.
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
