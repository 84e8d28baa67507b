// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who has the CPUs that a VM's vCPUs wait for.

use super::sample::{Running, Sample, Watched};
use crate::fit::cut;
use serde::Serialize;
use std::fmt;
use unspin_diagnosis::State;
use unspin_probe::Takers;

/// The largest of them are named.
const NAMED: usize = 3;
/// Cells of a VM's name in a sentence.
const NAME_MAX: usize = 40;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// A VM, as it is called.
    Vm(String),
    /// The command of any other process.
    Command(String),
}

/// A process that had CPUs which vCPUs of a VM waited for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Taker {
    #[serde(flatten)]
    pub who: Who,
    pub pid: u32,
    /// Of the time that the vCPUs were ready, 0 to 1.
    pub share: f64,
}

/// As in `stress (process 1234) 63.0 %`.
impl fmt::Display for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who {
            Who::Vm(name) => f.write_str(&cut(name, NAME_MAX))?,
            Who::Command(command) => write!(f, "{command} (process {})", self.pid)?,
        }
        write!(f, " {:.1} %", 100.0 * self.share)
    }
}

/// The largest takers, largest first. `None`: it is unknown who they are.
pub fn ready_by(vm: &Watched, before: &Sample, after: &Sample) -> Option<Vec<Taker>> {
    let (taken, had) = (after.takers.get(&vm.vm.pid)?, before.takers.get(&vm.vm.pid)?);
    let ready = |state: &&State| state.is_ready();
    let seen = vm.vcpus.iter().map(|(_, seen)| &seen.times);
    let ready_ns: u64 =
        seen.map(|times| State::ALL.iter().filter(ready).map(|s| times[*s]).sum::<u64>()).sum();
    Some(largest(had, taken, ready_ns, &after.vms))
}

fn largest(before: &Takers, after: &Takers, ready_ns: u64, vms: &[Running]) -> Vec<Taker> {
    let since = |(pid, taken): (&u32, &unspin_probe::Taken)| {
        let ns = taken.ns.saturating_sub(before.get(pid).map_or(0, |taken| taken.ns));
        (ns, *pid, taken.command.clone())
    };
    let mut all: Vec<(u64, u32, String)> =
        after.iter().map(since).filter(|(ns, ..)| *ns > 0).collect();
    // Of equal ones always the same.
    all.sort_by_key(|(ns, pid, _)| (std::cmp::Reverse(*ns), *pid));
    // They are not read at the same moment as the vCPUs' times, which are all that can be taken.
    let all_ns = ready_ns.max(all.iter().map(|(ns, ..)| ns).sum()).max(1);
    let taker = |(ns, pid, command): (u64, u32, String)| {
        let vm = vms.iter().find(|vm| vm.process.pid == pid);
        let who = match vm {
            Some(vm) => Who::Vm(vm.process.title().to_string()),
            None => Who::Command(unspin_text::printable(&command)),
        };
        Taker { who, pid, share: ns as f64 / all_ns as f64 }
    };
    all.into_iter().take(NAMED).map(taker).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Synthetic;
    use proptest::prelude::*;
    use unspin_probe::Taken;

    fn takers(all: &[(u32, u64)]) -> Takers {
        let taken = |(pid, ns): &(u32, u64)| (*pid, Taken { ns: *ns, command: format!("c{pid}") });
        all.iter().map(taken).collect()
    }

    #[test]
    fn the_largest_are_named_by_vm_or_command() {
        let vms = Synthetic::new(2, 1).vms();
        let pid = vms[1].process.pid;
        let before = takers(&[(7, 100), (pid, 50)]);
        let after = takers(&[(7, 300), (8, 10), (9, 20), (pid, 550), (10, 0)]);
        let all = largest(&before, &after, 1000, &vms);
        let text: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["db1 50.0 %", "c7 (process 7) 20.0 %", "c9 (process 9) 2.0 %"]);
        let json = serde_json::to_value(&all).unwrap();
        assert_eq!(json[0], serde_json::json!({"vm": "db1", "pid": pid, "share": 0.5}));
        assert_eq!(json[1], serde_json::json!({"command": "c7", "pid": 7, "share": 0.2}));
    }

    proptest! {
        #[test]
        fn shares_are_parts_of_the_whole(
            before in prop::collection::btree_map(1..20u32, 0..1_000_000u64, 0..20),
            after in prop::collection::btree_map(1..20u32, 0..1_000_000u64, 0..20),
            ready_ns in 0..1_000_000u64,
        ) {
            let of = |all: &std::collections::BTreeMap<u32, u64>| {
                takers(&all.iter().map(|(pid, ns)| (*pid, *ns)).collect::<Vec<_>>())
            };
            let all = largest(&of(&before), &of(&after), ready_ns, &[]);
            prop_assert!(all.len() <= NAMED);
            prop_assert!(all.iter().all(|taker| taker.share > 0.0));
            prop_assert!(all.iter().map(|taker| taker.share).sum::<f64>() <= 1.0 + 1e-9);
            prop_assert!(all.windows(2).all(|pair| pair[0].share >= pair[1].share));
        }
    }
}
