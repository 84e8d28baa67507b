// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long threads that always want to run get no CPU time, whatever keeps them from it.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(10);
/// A thread of KVM's with less CPU time than this is no vCPU of a guest that always runs.
const RUNS_NS: u64 = 1_000_000;

struct Thread {
    schedstat: PathBuf,
    run_ns: u64,
    since: Instant,
    longest: Duration,
}

impl Thread {
    /// Time it had a CPU, ns: the first number of its `schedstat`. It ends with its VM.
    fn run_ns(&self) -> Option<u64> {
        fs::read_to_string(&self.schedstat).ok()?.split(' ').next()?.parse().ok()
    }

    fn look(&mut self, now: Instant) {
        let Some(run_ns) = self.run_ns() else { return };
        self.longest = self.longest.max(now - self.since);
        if run_ns != self.run_ns {
            (self.run_ns, self.since) = (run_ns, now);
        }
    }
}

/// The vCPUs of processes that `vm` made: each of their threads that has run, less the first, which waits
/// for the others.
fn vcpus(pids: &[&str]) -> Result<Vec<Thread>, String> {
    let now = Instant::now();
    let mut threads = Vec::new();
    for pid in pids {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| format!("{pid}: {e}"))?;
        for task in tasks.flatten().filter(|task| *task.file_name() != **pid) {
            let schedstat = task.path().join("schedstat");
            let mut thread = Thread { schedstat, run_ns: 0, since: now, longest: Duration::ZERO };
            thread.run_ns = thread.run_ns().unwrap_or(0);
            threads.extend((thread.run_ns >= RUNS_NS).then_some(thread));
        }
    }
    Ok(threads)
}

/// Watches the vCPUs of processes for `ms`: how many they are, and the longest time, in ms, that one had
/// no CPU time. A thread that runs counts as served at every look, so the time is up to two looks too long.
pub fn longest(ms: u64, pids: &[&str]) -> Result<String, String> {
    let mut threads = vcpus(pids)?;
    let begin = Instant::now();
    let mut last = begin;
    let mut own = Duration::ZERO;
    while begin.elapsed() < Duration::from_millis(ms) {
        sleep(LOOK);
        let now = Instant::now();
        own = own.max(now - last);
        last = now;
        threads.iter_mut().for_each(|thread| thread.look(now));
    }
    let longest = threads.iter().map(|thread| thread.longest).max().unwrap_or_default();
    Ok(format!("{} {} {}", threads.len(), longest.as_millis(), own.as_millis()))
}
