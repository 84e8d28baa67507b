// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times for which threads that always want to run get no CPU time, for any reason.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(10);

/// Observations of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unserved {
    /// The longest time for which one of them had no CPU time. A thread that runs counts as served at each
    /// look, so this is up to two looks too long.
    pub longest: Duration,
    /// The longest time between two looks.
    pub between: Duration,
}

struct Thread {
    schedstat: PathBuf,
    ran_ns: Option<u64>,
    since: Instant,
}

/// Time for which a thread had a CPU, ns: the first number of its `schedstat`. `None`: it has
/// ended.
fn ran_ns(schedstat: &PathBuf) -> Option<u64> {
    fs::read_to_string(schedstat).ok()?.split(' ').next()?.parse().ok()
}

/// Watches threads by their `schedstat` for `time`. Ignores threads after they have ended.
pub fn unserved(schedstats: impl IntoIterator<Item = PathBuf>, time: Duration) -> Unserved {
    let begin = Instant::now();
    let thread = |schedstat| Thread { ran_ns: ran_ns(&schedstat), schedstat, since: begin };
    let mut threads: Vec<Thread> = schedstats.into_iter().map(thread).collect();
    let mut seen = Unserved { longest: Duration::ZERO, between: Duration::ZERO };
    let mut last = begin;
    while begin.elapsed() < time {
        sleep(LOOK);
        let now = Instant::now();
        seen.between = seen.between.max(now - last);
        last = now;
        for thread in &mut threads {
            let Some(ran_ns) = ran_ns(&thread.schedstat) else { continue };
            seen.longest = seen.longest.max(now - thread.since);
            if thread.ran_ns != Some(ran_ns) {
                (thread.ran_ns, thread.since) = (Some(ran_ns), now);
            }
        }
    }
    seen
}
