// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who has the CPUs for which a VM's vCPUs wait.

use super::sample::{Running, Sample, Watched};
use crate::fit::{cut, percent};
use serde::Serialize;
use std::fmt;
use unspin_diagnosis::State;
use unspin_probe::Takers;

/// Number of takers that are named, largest first.
const NAMED: usize = 3;
/// Cells of a VM's name in a sentence.
const NAME_MAX: usize = 40;
/// A smaller rest is in --json only.
const SHARE_MIN: f64 = 0.0005;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// A VM, by its name.
    Vm(String),
    /// Any other process, by its command.
    Command(String),
}

/// A process that had CPUs for which vCPUs of a VM waited.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Taker {
    #[serde(flatten)]
    pub who: Who,
    pub pid: u32,
    /// Share of the time in which the vCPUs were ready, 0 to 1.
    pub share: f64,
}

/// For example `stress (process 1234) 63.0 %`.
impl fmt::Display for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who {
            Who::Vm(name) => f.write_str(&cut(name, NAME_MAX))?,
            Who::Command(command) => write!(f, "{command} (process {})", self.pid)?,
        }
        write!(f, " {:.1} %", 100.0 * self.share)
    }
}

/// The rest of the time in which a VM's vCPUs were ready, without the named takers, as shares, 0 to
/// 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rest {
    /// Smaller takers had the CPUs.
    pub smaller: f64,
    /// The CPUs were idle and had to wake up.
    pub idle: f64,
    /// The taker was not recorded.
    pub unknown: f64,
}

/// Who had the CPUs for which a VM's vCPUs waited.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadyBy {
    /// The largest ones, in descending order.
    pub named: Vec<Taker>,
    pub rest: Rest,
}

/// `None` if the takers are unknown, or nothing was seen of its vCPUs.
pub fn ready_by(vm: &Watched, before: &Sample, after: &Sample) -> Option<ReadyBy> {
    if vm.vcpus.iter().all(|(_, seen)| seen.times.total() == 0) {
        return None;
    }
    let (taken, had) = (after.takers.get(&vm.vm.pid)?, before.takers.get(&vm.vm.pid)?);
    let ready = |state: &&State| state.is_ready();
    let seen = vm.vcpus.iter().map(|(_, seen)| &seen.times);
    let ready_ns: u64 =
        seen.map(|times| State::ALL.iter().filter(ready).map(|s| times[*s]).sum::<u64>()).sum();
    Some(largest(had, taken, ready_ns, &after.vms))
}

fn largest(before: &Takers, after: &Takers, ready_ns: u64, vms: &[Running]) -> ReadyBy {
    let since = |(pid, taken): (&u32, &unspin_probe::Taken)| {
        let ns = taken.ns.saturating_sub(before.by.get(pid).map_or(0, |taken| taken.ns));
        (ns, *pid, taken.command.clone())
    };
    let mut all: Vec<(u64, u32, String)> =
        after.by.iter().map(since).filter(|(ns, ..)| *ns > 0).collect();
    // Among equal takers the order is always the same.
    all.sort_by_key(|(ns, pid, _)| (std::cmp::Reverse(*ns), *pid));
    let sum = |all: &[(u64, u32, String)]| all.iter().map(|(ns, ..)| ns).sum::<u64>();
    let lost = after.lost_ns.saturating_sub(before.lost_ns);
    // Takers and the vCPUs' times are not read at the same moment: limit the takers to the vCPUs'
    // times.
    let all_ns = ready_ns.max(sum(&all) + lost);
    let share = |ns: u64| ns as f64 / all_ns.max(1) as f64;
    let rest = Rest {
        smaller: share(sum(all.get(NAMED..).unwrap_or_default())),
        idle: share(all_ns - sum(&all) - lost),
        unknown: share(lost),
    };
    let taker = |(ns, pid, command): (u64, u32, String)| {
        let vm = vms.iter().find(|vm| vm.process.pid == pid);
        let who = match vm {
            Some(vm) => Who::Vm(vm.process.title().to_string()),
            None => Who::Command(unspin_text::printable(&command)),
        };
        Taker { who, pid, share: share(ns) }
    };
    ReadyBy { named: all.into_iter().take(NAMED).map(taker).collect(), rest }
}

/// A part of a sentence about the VM of process `own`. `None` if it did not wait.
pub fn in_words(named: &[Taker], rest: Rest, own: u32) -> Option<String> {
    let text = |taker: &Taker| match taker.pid == own {
        true => format!("itself {}", percent(taker.share)),
        false => taker.to_string(),
    };
    let mut all: Vec<String> = named.iter().map(text).collect();
    let Rest { smaller, idle, unknown } = rest;
    if all.is_empty() && unknown < SHARE_MIN {
        return None;
    }
    for (who, share) in [("smaller ones", smaller), ("nobody", idle), ("unknown ones", unknown)] {
        if share >= SHARE_MIN {
            all.push(format!("{who} {}", percent(share)));
        }
    }
    Some(format!("While it was ready, its CPUs went to: {}.", all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Synthetic;
    use proptest::prelude::*;
    use unspin_probe::Taken;

    fn takers(all: &[(u32, u64)], lost_ns: u64) -> Takers {
        let taken = |(pid, ns): &(u32, u64)| (*pid, Taken { ns: *ns, command: format!("c{pid}") });
        Takers { by: all.iter().map(taken).collect(), lost_ns }
    }

    #[test]
    fn the_largest_are_named_by_vm_or_command() {
        let vms = Synthetic::new(2, 1).vms();
        let pid = vms[1].process.pid;
        let before = takers(&[(7, 100), (pid, 50)], 40);
        let after = takers(&[(7, 300), (8, 10), (9, 20), (pid, 550), (10, 0)], 110);
        let ReadyBy { named: all, rest } = largest(&before, &after, 1000, &vms);
        assert_eq!(rest, Rest { smaller: 0.01, idle: 0.2, unknown: 0.07 });
        let text: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["db1 50.0 %", "c7 (process 7) 20.0 %", "c9 (process 9) 2.0 %"]);
        let said = in_words(&all, rest, 7).unwrap();
        let expected = "db1 50.0 %, itself 20.0 %, c9 (process 9) 2.0 %, smaller ones 1.0 %, \
                        nobody 20.0 %, unknown ones 7.0 %.";
        assert_eq!(said, format!("While it was ready, its CPUs went to: {expected}"));
        let idle = Rest { idle: 1.0, ..Rest::default() };
        assert_eq!(in_words(&[], idle, 7), None);
        let some = Rest { unknown: 0.2, ..idle };
        assert!(in_words(&[], some, 7).unwrap().ends_with("nobody 100.0 %, unknown ones 20.0 %."));
        let json = serde_json::to_value(&all).unwrap();
        assert_eq!(json[0], serde_json::json!({"vm": "db1", "pid": pid, "share": 0.5}));
        assert_eq!(json[1], serde_json::json!({"command": "c7", "pid": 7, "share": 0.2}));
    }

    proptest! {
        #[test]
        fn shares_are_parts_of_the_whole(
            before in prop::collection::btree_map(1..20u32, 0..1_000_000u64, 0..20),
            after in prop::collection::btree_map(1..20u32, 0..1_000_000u64, 0..20),
            (ready_ns, lost_ns) in (0..1_000_000u64, 0..1_000_000u64),
        ) {
            let of = |all: &std::collections::BTreeMap<u32, u64>, lost_ns| {
                takers(&all.iter().map(|(pid, ns)| (*pid, *ns)).collect::<Vec<_>>(), lost_ns)
            };
            let ReadyBy { named: all, rest } =
                largest(&of(&before, 0), &of(&after, lost_ns), ready_ns, &[]);
            prop_assert!(all.len() <= NAMED);
            prop_assert!(all.iter().all(|taker| taker.share > 0.0));
            let named: f64 = all.iter().map(|taker| taker.share).sum();
            let sum = named + rest.smaller + rest.idle + rest.unknown;
            let is_nothing = ready_ns == 0 && lost_ns == 0 && all.is_empty();
            prop_assert!((sum - if is_nothing { 0.0 } else { 1.0 }).abs() < 1e-9, "{sum}");
            prop_assert!(rest.smaller >= 0.0 && rest.idle >= 0.0 && rest.unknown >= 0.0);
            prop_assert!(all.windows(2).all(|pair| pair[0].share >= pair[1].share));
        }
    }
}
