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
            // In a cpuset without these CPUs, a thread has others. Another thread's cpuset may differ.
            let is_same = || change.set == list || cpus::list(&self.allowed_cpus(tid)) == list;
            self.is_still(&of_heir, &list, &change.set)
                && is_same()
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

    /// The policy that a thread with `SCHED_EXT` would have if that of the thread which started it were not changed.
    /// The kernel does not tell which one that is. It is taken to be one of the process with the same CPUs and nice
    /// value; the process's first thread comes before others.
    pub fn policy_before(&self, changes: &[Change], pid: u32, heir: u32) -> i32 {
        let threads: BTreeSet<u32> = self.threads(pid).into_iter().collect();
        let (list, nice) = (cpus::list(&self.allowed_cpus(heir)), self.nice(heir));
        let of_heir = Target::Affinity { tid: heir };
        let cpus_of = |tid: u32, key: u64| {
            let is_it =
                |change: &&Change| change.target == Target::Affinity { tid } && change.key == key;
            let set = changes.iter().rev().find(is_it).map(|change| change.set.clone());
            set.unwrap_or_else(|| cpus::list(&self.allowed_cpus(tid)))
        };
        let starter = |change: &Change| {
            let Target::Policy { tid } = change.target else { return None };
            let is_its = threads.contains(&tid) && self.start_time(tid) == Some(change.key);
            let was = ordinary(change.was.parse().ok()).filter(|_| is_its)?;
            let has_cpus = self.is_still(&of_heir, &list, &cpus_of(tid, change.key));
            // A smaller key is more alike.
            Some(((tid != heir, !has_cpus, self.nice(tid) != nice, tid != pid), was))
        };
        let is_ext = |change: &&Change| change.set == policy::EXT.to_string();
        let known = changes.iter().rev().filter(is_ext).filter_map(starter);
        let most_alike = known.min_by_key(|(unlike, _)| *unlike).map(|(_, was)| was);
        // All that are known have theirs back.
        let of_first = || ordinary(self.scheduling_policy(pid));
        most_alike.or_else(of_first).unwrap_or(libc::SCHED_OTHER)
    }

    /// Gives threads in no journal their CPUs and policy back, in the processes whose threads got theirs. `rest` are
    /// the changes that stay in the journal. Tries all of them, and returns the first error.
    pub(crate) fn restore_heirs(&self, done: &[(Change, Back)], rest: &[Change]) -> io::Result<()> {
        let done = done.iter().map(|(change, _)| change);
        // A thread that keeps its own may have started others.
        let changes: Vec<Change> = rest.iter().chain(done.clone()).cloned().collect();
        let is_ext = |change: &Change| change.set == policy::EXT.to_string();
        let with_policy = |change: &Change| match change.target {
            Target::Policy { tid } if self.start_time(tid) == Some(change.key) => Some(tid),
            _ => None,
        };
        let tids = done.filter(|change| is_ext(change)).filter_map(with_policy);
        let pids: BTreeSet<u32> = tids.filter_map(|tid| self.process_of(tid)).collect();
        let known: BTreeMap<u32, u64> =
            rest.iter().filter_map(|change| Some((with_policy(change)?, change.key))).collect();
        let mut all = Ok(());
        for pid in pids {
            for _ in 0..LOOKS {
                let threads = self.threads(pid).into_iter().filter(|tid| !known.contains_key(tid));
                let is_heir = |tid: &u32| policy::of(*tid).is_ok_and(|of| of == policy::EXT);
                let heirs: Vec<u32> = threads.filter(is_heir).collect();
                for tid in &heirs {
                    let policy = self.policy_before(&changes, pid, *tid);
                    let before = self.cpus_before(&changes, pid, *tid);
                    let affinity = Target::Affinity { tid: *tid };
                    let widened = before.map_or(Ok(()), |before| {
                        Hands::write(self, &affinity, &cpus::list(&before))
                    });
                    let given = policy::set(*tid, policy);
                    let is_lasting = |e: &io::Error| !has_ended(e);
                    let failed = [widened, given].into_iter().filter_map(Result::err);
                    all = failed.filter(is_lasting).fold(all, |all, e| all.and(Err(e)));
                }
                if heirs.is_empty() {
                    break;
                }
            }
        }
        all
    }
}

fn has_ended(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::ESRCH)
}

/// A policy that a thread can have again after `SCHED_EXT`, and has no parameters of its own.
fn ordinary(policy: Option<i32>) -> Option<i32> {
    policy.filter(|policy| matches!(*policy, libc::SCHED_OTHER | libc::SCHED_BATCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scratch::Scratch;

    /// A thread of process 41.
    fn thread(dir: &Scratch, tid: u32, nice: i32, policy: i32, cpus: &str) {
        let mut fields = vec!["0".to_string(); 38];
        // From the fourth on.
        (fields[19 - 4], fields[41 - 4]) = (nice.to_string(), policy.to_string());
        dir.line(format!("proc/41/task/{tid}/comm"), "t");
        dir.line(format!("proc/{tid}/stat"), &format!("{tid} (t) S {}", fields.join(" ")));
        dir.line(format!("proc/{tid}/status"), &format!("Tgid:\t41\nCpus_allowed_list:\t{cpus}"));
    }

    fn change(id: u64, target: Target, was: &str, set: &str) -> Change {
        Change { id, target, key: 0, was: was.into(), set: set.into() }
    }

    #[test]
    fn a_thread_has_the_policy_of_the_one_that_is_like_it() {
        let dir = Scratch::new();
        let host = Host::at(&dir.join("proc"));
        thread(&dir, 41, 0, policy::EXT, "2-3");
        thread(&dir, 42, 0, policy::EXT, "2");
        thread(&dir, 43, 5, policy::EXT, "2-3");
        let policies = [(41, "0"), (42, "3"), (43, "3")];
        let of = |(id, (tid, was)): (usize, &(u32, &str))| {
            change(id as u64, Target::Policy { tid: *tid }, was, "7")
        };
        let mut changes: Vec<Change> = policies.iter().enumerate().map(of).collect();
        changes.push(change(4, Target::Affinity { tid: 41 }, "0-7", "2-3"));
        for (name, nice, cpus, wanted) in [
            ("as the first", 0, "2-3", libc::SCHED_OTHER),
            ("by CPUs", 0, "2", libc::SCHED_BATCH),
            ("by the nice value", 5, "2-3", libc::SCHED_BATCH),
            ("like none", 9, "5", libc::SCHED_OTHER),
        ] {
            thread(&dir, 44, nice, policy::EXT, cpus);
            assert_eq!(host.policy_before(&changes, 41, 44), wanted, "{name}");
        }
        // Another program set a policy between two changes.
        changes.push(change(5, Target::Policy { tid: 41 }, "3", "7"));
        thread(&dir, 44, 0, policy::EXT, "2-3");
        assert_eq!(host.policy_before(&changes, 41, 44), libc::SCHED_BATCH);
        changes.push(change(6, Target::Policy { tid: 44 }, "0", "7"));
        assert_eq!(host.policy_before(&changes, 41, 44), libc::SCHED_OTHER, "its own");
    }

    #[test]
    fn once_all_have_theirs_back_it_is_that_of_the_first() {
        let dir = Scratch::new();
        let host = Host::at(&dir.join("proc"));
        for (policy, wanted) in [(3, 3), (0, 0), (policy::EXT, 0), (1, 0)] {
            thread(&dir, 41, 0, policy, "0-7");
            thread(&dir, 42, 0, policy::EXT, "0-7");
            assert_eq!(host.policy_before(&[], 41, 42), wanted);
        }
    }
}
