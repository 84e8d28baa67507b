// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that a process with `SCHED_EXT` starts: they have its policy and its CPUs, as its threads have.

use crate::heirs::{Starters, LOOKS};
use crate::journal::Change;
use crate::{policy, Host};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

impl Host {
    /// Gives threads of processes that these started their CPUs and policy back, unless a thread of these stays in the
    /// journal: it is in `known`. Tries all of them, and returns the first error.
    pub(crate) fn restore_children(
        &self,
        changes: &[Change],
        pids: &BTreeSet<u32>,
        known: &BTreeSet<u32>,
    ) -> io::Result<()> {
        let stays = |pid: u32| self.threads(pid).iter().any(|tid| known.contains(tid));
        let pids: BTreeSet<u32> = pids.iter().copied().filter(|pid| !stays(*pid)).collect();
        let (mut all, mut before) = (Ok(()), BTreeMap::new());
        for _ in 0..LOOKS {
            let heirs = self.children_with_ext(&pids, known);
            // None are left, or those that failed.
            if heirs == before {
                break;
            }
            let firsts: BTreeSet<u32> = heirs.values().map(|(first, _)| *first).collect();
            let starters = firsts.into_iter().map(|pid| (pid, self.starters(changes, pid)));
            let starters: BTreeMap<u32, Starters<'_>> = starters.collect();
            for (tid, (first, start)) in &heirs {
                // Another thread may have its number since.
                let is = self.task(*tid).filter(|is| is.start == *start);
                if is.is_some_and(|is| is.policy == policy::EXT) {
                    all = all.and(self.restore_heir(&starters[first], *tid));
                }
            }
            before = heirs;
        }
        all
    }

    /// Threads with `SCHED_EXT` of processes that descend from these: from which one, and when the thread started. A
    /// process that has a thread in `known` gives these back itself, and what descends from it.
    fn children_with_ext(
        &self,
        pids: &BTreeSet<u32>,
        known: &BTreeSet<u32>,
    ) -> BTreeMap<u32, (u32, u64)> {
        let mut found = BTreeMap::new();
        if pids.is_empty() {
            return found;
        }
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for pid in self.processes().unwrap_or_default() {
            if let Some(parent) = self.stat(pid, 4) {
                children.entry(parent).or_default().push(pid);
            }
        }
        let mut ahead: Vec<(u32, u32)> = pids.iter().map(|pid| (*pid, *pid)).collect();
        while let Some((parent, first)) = ahead.pop() {
            for child in children.remove(&parent).unwrap_or_default() {
                let threads = self.threads(child);
                if pids.contains(&child) || threads.iter().any(|tid| known.contains(tid)) {
                    continue;
                }
                let tasks = threads.into_iter().filter_map(|tid| self.task(tid));
                let with_ext = tasks.filter(|task| task.policy == policy::EXT);
                found.extend(with_ext.map(|task| (task.tid, (first, task.start))));
                ahead.push((child, first));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scratch::Scratch;

    /// A thread, whose process has this parent.
    fn thread(dir: &Scratch, (tid, process, parent): (u32, u32, u32), policy: i32) {
        let mut fields = vec!["0".to_string(); 38];
        // From the fourth on.
        fields[0] = parent.to_string();
        (fields[22 - 4], fields[41 - 4]) = (format!("{tid}0"), policy.to_string());
        dir.line(format!("proc/{process}/task/{tid}/comm"), "t");
        dir.line(format!("proc/{tid}/stat"), &format!("{tid} (a) b) S {}", fields.join(" ")));
        let status = format!("Tgid:\t{process}\nCpus_allowed_list:\t2-3");
        dir.line(format!("proc/{tid}/status"), &status);
    }

    #[test]
    fn what_descends_from_a_process_and_has_its_policy_is_found() {
        let dir = Scratch::new();
        let host = Host::at(&dir.join("proc"));
        let (other, ext) = (libc::SCHED_OTHER, policy::EXT);
        for (of, policy) in [
            ((41, 41, 1), other),
            ((42, 41, 1), ext),
            // A child, its threads, and what it started.
            ((50, 50, 41), other),
            ((51, 50, 41), ext),
            ((60, 60, 50), ext),
            // Another VM, and its child.
            ((70, 70, 41), ext),
            ((71, 71, 70), ext),
            // Of nobody's.
            ((80, 80, 1), ext),
        ] {
            thread(&dir, of, policy);
        }
        let found = |pids: &[u32], known: &[u32]| {
            let of = |tids: &[u32]| tids.iter().copied().collect::<BTreeSet<u32>>();
            host.children_with_ext(&of(pids), &of(known)).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(found(&[], &[]), []);
        assert_eq!(found(&[41], &[70]), [(51, (41, 510)), (60, (41, 600))]);
        let of_second = (71, (70, 710));
        assert_eq!(found(&[41, 70], &[]), [(51, (41, 510)), (60, (41, 600)), of_second]);
        assert_eq!(found(&[70], &[41, 42]), [of_second]);
        assert_eq!(found(&[80], &[]), []);
    }
}
