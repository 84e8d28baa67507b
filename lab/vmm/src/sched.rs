// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel scheduler's counts of a thread.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use unspin_scenario::result::SchedStats;

/// A thread's counts since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Time in which it was ready and had no CPU, ns; `None` if the kernel does not count it.
    pub steal_ns: Option<u64>,
    /// Times it lost its CPU, and gave it up.
    pub involuntary_switches: u64,
    pub voluntary_switches: u64,
}

/// The files with a thread's counts, opened beforehand.
pub struct Counter {
    schedstat: Option<File>,
    status: File,
}

impl Counter {
    /// The counter for the thread with this directory in /proc.
    ///
    /// # Errors
    ///
    /// There is no such thread.
    pub fn open(task: impl AsRef<Path>) -> io::Result<Counter> {
        let file = |name: &str| File::open(task.as_ref().join(name));
        // Missing without CONFIG_SCHED_INFO.
        Ok(Counter { schedstat: file("schedstat").ok(), status: file("status")? })
    }

    /// The present counts.
    ///
    /// # Errors
    ///
    /// The thread has ended.
    pub fn read(&self) -> io::Result<Counts> {
        let status = text(&self.status)?;
        let schedstat = self.schedstat.as_ref().map(text).transpose()?;
        Ok(Counts {
            steal_ns: schedstat.as_deref().and_then(run_delay_ns),
            involuntary_switches: field(&status, "nonvoluntary_ctxt_switches:"),
            voluntary_switches: field(&status, "voluntary_ctxt_switches:"),
        })
    }
}

fn text(file: &File) -> io::Result<String> {
    let mut bytes = [0; 8192];
    let length = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// The second of schedstat's numbers (Documentation/scheduler/sched-stats.rst).
fn run_delay_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// What the scheduler did with threads from one reading of them to another.
pub fn sched_stats(first: &[Counts], second: &[Counts]) -> SchedStats {
    let difference = |count: fn(&Counts) -> u64| -> Vec<u64> {
        first.iter().zip(second).map(|(a, b)| count(b).saturating_sub(count(a))).collect()
    };
    let has_steal = first.iter().chain(second).all(|counts| counts.steal_ns.is_some());
    SchedStats {
        steal_ns: has_steal.then(|| difference(|counts| counts.steal_ns.unwrap_or(0))),
        involuntary_switches: difference(|counts| counts.involuntary_switches),
        voluntary_switches: difference(|counts| counts.voluntary_switches),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_the_kernel_writes_them() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(field(status, "voluntary_ctxt_switches:"), 12);
        assert_eq!(field(status, "nonvoluntary_ctxt_switches:"), 3);
        assert_eq!(field(status, "none:"), 0);
        assert_eq!(run_delay_ns("11 22 33\n"), Some(22));
        assert_eq!(run_delay_ns(""), None);
    }

    #[test]
    fn a_thread_that_sleeps_gives_its_cpu_up() {
        // SAFETY: no memory involved.
        let tid = unsafe { libc::gettid() };
        let counter = Counter::open(format!("/proc/self/task/{tid}")).unwrap();
        let before = counter.read().unwrap().voluntary_switches;
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(counter.read().unwrap().voluntary_switches > before);
    }

    #[test]
    fn what_the_scheduler_did_is_a_difference() {
        let at = |n| {
            [n, 2 * n].map(|ns| Counts {
                steal_ns: Some(ns),
                involuntary_switches: n,
                voluntary_switches: 3 * ns,
            })
        };
        let stats = sched_stats(&at(5), &at(9));
        assert_eq!(stats.steal_ns, Some(vec![4, 8]));
        assert_eq!(stats.involuntary_switches, [4, 4]);
        assert_eq!(stats.voluntary_switches, [12, 24]);
        let without = [Counts { steal_ns: None, ..at(5)[0] }, at(5)[1]];
        assert_eq!(sched_stats(&without, &at(9)).steal_ns, None);
    }
}
