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
    /// For how much of `longest` this thread waited for a CPU, and did not sleep. The kernel counts a wait when it is
    /// over, so one that still lasts at the last look is missing.
    pub ready: Duration,
    /// The longest time between two looks.
    pub between: Duration,
}

struct Thread {
    schedstat: PathBuf,
    times: Option<Times>,
    since: Instant,
}

/// For how long a thread had a CPU, and waited for one, ns.
#[derive(Debug, Clone, Copy)]
struct Times {
    ran: u64,
    waited: u64,
}

/// The first two numbers of a thread's `schedstat`. `None`: it has ended.
fn times(schedstat: &PathBuf) -> Option<Times> {
    let text = fs::read_to_string(schedstat).ok()?;
    let mut numbers = text.split_whitespace().map_while(|number| number.parse().ok());
    Some(Times { ran: numbers.next()?, waited: numbers.next()? })
}

/// Watches threads by their `schedstat` for `time`. Ignores threads after they have ended.
pub fn unserved(schedstats: impl IntoIterator<Item = PathBuf>, time: Duration) -> Unserved {
    let begin = Instant::now();
    let thread = |schedstat| Thread { times: times(&schedstat), schedstat, since: begin };
    let mut threads: Vec<Thread> = schedstats.into_iter().map(thread).collect();
    let none = Duration::ZERO;
    let mut seen = Unserved { longest: none, ready: none, between: none };
    let mut last = begin;
    while begin.elapsed() < time {
        sleep(LOOK);
        let now = Instant::now();
        seen.between = seen.between.max(now - last);
        last = now;
        for thread in &mut threads {
            let Some(is) = times(&thread.schedstat) else { continue };
            let was = thread.times.unwrap_or(is);
            if now - thread.since > seen.longest {
                seen.longest = now - thread.since;
                seen.ready = Duration::from_nanos(is.waited.saturating_sub(was.waited));
            }
            if thread.times.is_none() || was.ran != is.ran {
                (thread.times, thread.since) = (Some(is), now);
            }
        }
    }
    seen
}
