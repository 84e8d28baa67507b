// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that a thread with `SCHED_EXT` starts: they have its policy and its CPUs from their start, and are in no
//! journal.

use crate::journal::{Back, Change, Hands, Target};
use crate::{cpus, is_left, policy, Host, Task};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// In how many looks at a process all are found: a thread that is started meanwhile is found in the next.
pub(crate) const LOOKS: usize = 16;

/// What a thread would have if nothing of the thread that started it were changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Before {
    pub policy: i32,
    /// `None`: it has not inherited its CPUs, as far as that can be told.
    pub cpus: Option<BTreeSet<u32>>,
    /// Those that it has.
    pub has: BTreeSet<u32>,
}

/// The threads of a process whose settings were changed, which may have started others. Each fact is read once.
pub struct Starters<'a> {
    host: &'a Host,
    pid: u32,
    tasks: BTreeMap<u32, Task>,
    /// Changes of these threads, in order.
    changes: Vec<&'a Change>,
    /// The CPUs that were set last.
    set: BTreeMap<u32, &'a str>,
}

impl Starters<'_> {
    /// What an heir would have. The kernel does not tell who started it.
    pub fn before(&self, heir: u32) -> Before {
        let is = self.host.task(heir);
        let has = is.as_ref().map(|is| is.cpus.clone()).unwrap_or_default();
        let (list, cpuset) = (cpus::list(&has), OnceCell::new());
        // In a cpuset without the CPUs that were set, it has others.
        let is_still = |set: &str| {
            let cpuset = || cpuset.get_or_init(|| self.host.cpuset(heir)).as_ref();
            set == list || cpuset().is_some_and(|cpuset| is_left(&list, set, cpuset))
        };
        let cpus = self.cpus_before(&list, &is_still);
        let policy = self.policy_before(heir, is.map(|is| is.nice), &is_still);
        Before { policy, cpus, has }
    }

    /// The CPUs of a thread before changes that set the CPUs which the heir has. The process's first thread comes
    /// before others.
    fn cpus_before(&self, list: &str, is_still: &dyn Fn(&str) -> bool) -> Option<BTreeSet<u32>> {
        let is_it = |change: &&&Change| {
            let Target::Affinity { tid } = change.target else { return false };
            // Another thread's cpuset may differ.
            let is_same = || change.set == list || cpus::list(&self.tasks[&tid].cpus) == list;
            is_still(&change.set) && is_same()
        };
        let of_first = |change: &&&Change| change.target != Target::Affinity { tid: self.pid };
        let mut found = *self.changes.iter().filter(is_it).min_by_key(of_first)?;
        // The CPUs that a thread had before may have been set by an earlier change.
        let is_before = |change: &&Change, later: &Change| {
            (change.target == later.target && change.key == later.key) && change.set == later.was
        };
        let mut earlier = &self.changes[..];
        while let Some(at) = earlier.iter().position(|change| is_before(change, found)) {
            (earlier, found) = (&earlier[..at], earlier[at]);
        }
        cpus::parse(&found.was)
    }

    /// The policy of the thread that started an heir with `SCHED_EXT`, before it was changed. It is taken to be one of
    /// the process with the same CPUs and nice value; the process's first thread comes before others.
    fn policy_before(&self, heir: u32, nice: Option<i32>, is_still: &dyn Fn(&str) -> bool) -> i32 {
        let starter = |change: &&Change| {
            let Target::Policy { tid } = change.target else { return None };
            let was = ordinary(change.was.parse().ok())?;
            let is = self.tasks.get(&tid)?;
            let has_cpus = match self.set.get(&tid) {
                Some(set) => is_still(set),
                None => is_still(&cpus::list(&is.cpus)),
            };
            // A smaller key is more alike.
            Some(((tid != heir, !has_cpus, Some(is.nice) != nice, tid != self.pid), was))
        };
        let is_ext = |change: &&&Change| change.set == policy::EXT.to_string();
        let known = self.changes.iter().rev().filter(is_ext).filter_map(starter);
        let most_alike = known.min_by_key(|(unlike, _)| *unlike).map(|(_, was)| was);
        // All that are known have theirs back.
        let of_first = || ordinary(self.host.scheduling_policy(self.pid));
        most_alike.or_else(of_first).unwrap_or(libc::SCHED_OTHER)
    }
}

impl Host {
    /// The threads of a process that are still there, and have these changes.
    pub fn starters<'a>(&'a self, changes: &'a [Change], pid: u32) -> Starters<'a> {
        let threads: BTreeSet<u32> = self.threads(pid).into_iter().collect();
        let tids = changes.iter().filter_map(|change| change.target.thread());
        let tids: BTreeSet<u32> = tids.filter(|tid| threads.contains(tid)).collect();
        let tasks: BTreeMap<u32, Task> =
            tids.into_iter().filter_map(|tid| Some((tid, self.task(tid)?))).collect();
        let is_of = |change: &&Change| {
            let task = change.target.thread().and_then(|tid| tasks.get(&tid));
            task.is_some_and(|task| task.start == change.key && task.process == pid)
        };
        let changes: Vec<&Change> = changes.iter().filter(is_of).collect();
        let set = changes.iter().filter_map(|change| match change.target {
            Target::Affinity { tid } => Some((tid, &*change.set)),
            _ => None,
        });
        let set = set.collect();
        Starters { host: self, pid, tasks, changes, set }
    }

    /// Gives threads in no journal their CPUs and policy back, in the processes whose threads got theirs, and in those
    /// that these started. `rest` are the changes that stay in the journal. Tries all of them, and returns the first
    /// error.
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
        if pids.is_empty() {
            return Ok(());
        }
        let known: BTreeSet<u32> = rest.iter().filter_map(with_policy).collect();
        let mut all = Ok(());
        for pid in pids.iter().copied() {
            for _ in 0..LOOKS {
                let threads = self.threads(pid).into_iter().filter(|tid| !known.contains(tid));
                let is_heir = |tid: &u32| policy::of(*tid).is_ok_and(|of| of == policy::EXT);
                let heirs: Vec<u32> = threads.filter(is_heir).collect();
                if heirs.is_empty() {
                    break;
                }
                let starters = self.starters(&changes, pid);
                for tid in heirs {
                    all = all.and(self.restore_heir(&starters, tid));
                }
            }
        }
        all.and(self.restore_children(&changes, &pids, &known))
    }

    /// Gives a thread its CPUs and its policy back. One that has ended is no error.
    pub(crate) fn restore_heir(&self, starters: &Starters<'_>, tid: u32) -> io::Result<()> {
        let before = starters.before(tid);
        let affinity = Target::Affinity { tid };
        let write = |cpus: BTreeSet<u32>| Hands::write(self, &affinity, &cpus::list(&cpus));
        let widened = before.cpus.map_or(Ok(()), write);
        let given = policy::set(tid, before.policy);
        let mut failed = [widened, given].into_iter().filter_map(Result::err);
        failed.find(|e| !has_ended(e)).map_or(Ok(()), Err)
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

    fn policy_of(host: &Host, changes: &[Change], heir: u32) -> i32 {
        host.starters(changes, 41).before(heir).policy
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
            assert_eq!(policy_of(&host, &changes, 44), wanted, "{name}");
        }
        // Another program set a policy between two changes.
        changes.push(change(5, Target::Policy { tid: 41 }, "3", "7"));
        thread(&dir, 44, 0, policy::EXT, "2-3");
        assert_eq!(policy_of(&host, &changes, 44), libc::SCHED_BATCH);
        changes.push(change(6, Target::Policy { tid: 44 }, "0", "7"));
        assert_eq!(policy_of(&host, &changes, 44), libc::SCHED_OTHER, "its own");
    }

    #[test]
    fn once_all_have_theirs_back_it_is_that_of_the_first() {
        let dir = Scratch::new();
        let host = Host::at(&dir.join("proc"));
        for (policy, wanted) in [(3, 3), (0, 0), (policy::EXT, 0), (1, 0)] {
            thread(&dir, 41, 0, policy, "0-7");
            thread(&dir, 42, 0, policy::EXT, "0-7");
            assert_eq!(policy_of(&host, &[], 42), wanted);
        }
    }
}
