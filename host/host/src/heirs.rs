// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that a thread with `SCHED_EXT` starts: they have its policy and its CPUs from their start, and are in no
//! journal.

use crate::journal::{Back, Change, Hands, Target};
use crate::{cpus, policy, Host};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// In how many looks at a process all are found: a thread that is started meanwhile is found in the next.
const LOOKS: usize = 16;

impl Host {
    /// The CPUs that a thread would have if those that it inherited from a thread of its process were not changed:
    /// that thread's before changes that set the CPUs which the heir has. The process's first thread comes before
    /// others.
    pub fn cpus_before(&self, changes: &[Change], pid: u32, heir: u32) -> Option<BTreeSet<u32>> {
        let list = cpus::list(&self.allowed_cpus(heir));
        let of_heir = Target::Affinity { tid: heir };
        let is_it = |change: &&Change| {
            let Target::Affinity { tid } = change.target else { return false };
            self.is_still(&of_heir, &list, &change.set)
                && self.start_time(tid) == Some(change.key)
                && self.process_of(tid) == Some(pid)
        };
        let of_first = |change: &&Change| change.target != Target::Affinity { tid: pid };
        let mut found = changes.iter().filter(is_it).min_by_key(of_first)?;
        // The CPUs that a thread had before may have been set by an earlier change.
        let is_before = |change: &&Change, later: &Change| {
            (change.target == later.target && change.key == later.key) && change.set == later.was
        };
        let mut earlier = changes;
        while let Some(at) = earlier.iter().position(|change| is_before(&change, found)) {
            (earlier, found) = (&earlier[..at], &earlier[at]);
        }
        cpus::parse(&found.was)
    }

    /// Gives threads in no journal their CPUs and policy back, in the processes whose threads got theirs. `rest` are
    /// the changes that stay in the journal.
    pub(crate) fn restore_heirs(&self, done: &[(Change, Back)], rest: &[Change]) -> io::Result<()> {
        let changes: Vec<Change> = done.iter().map(|(change, _)| change.clone()).collect();
        let is_ext = |change: &&Change| change.set == policy::EXT.to_string();
        let with_policy = |change: &Change| match change.target {
            Target::Policy { tid } if self.start_time(tid) == Some(change.key) => Some(tid),
            _ => None,
        };
        let tids = changes.iter().filter(is_ext).filter_map(with_policy);
        let pids: BTreeSet<u32> = tids.filter_map(|tid| self.process_of(tid)).collect();
        let known: BTreeMap<u32, u64> =
            rest.iter().filter_map(|change| Some((with_policy(change)?, change.key))).collect();
        for pid in pids {
            for _ in 0..LOOKS {
                let threads = self.threads(pid).into_iter().filter(|tid| !known.contains_key(tid));
                let is_heir = |tid: &u32| policy::of(*tid).is_ok_and(|of| of == policy::EXT);
                let heirs: Vec<u32> = threads.filter(is_heir).collect();
                for tid in &heirs {
                    let before = self.cpus_before(&changes, pid, *tid);
                    let widened = before.map_or(Ok(()), |cpus| cpus::set_affinity(*tid, &cpus));
                    let given = widened.and_then(|()| policy::set(*tid, libc::SCHED_OTHER));
                    given.or_else(|e| if has_ended(&e) { Ok(()) } else { Err(e) })?;
                }
                if heirs.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn has_ended(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::ESRCH)
}
