// SPDX-License-Identifier: MIT OR Apache-2.0
//! One measurement of one lock: threads that take it in a loop (`c/bench.c`).

use std::io;

/// Buckets to each power of two.
const SUB_BITS: u32 = 4;
/// Buckets of a wait histogram, as `bench_bucket()` of `c/bench.h` numbers them.
pub const BUCKETS: usize = 40 << SUB_BITS;

/// The longest wait of a bucket, TSC ticks; at most a sixteenth longer than its shortest.
pub fn bucket_end_ticks(bucket: usize) -> u64 {
    let (octave, sub) = (bucket as u32 >> SUB_BITS, bucket as u64 & ((1 << SUB_BITS) - 1));
    match octave {
        0 => sub,
        _ => (((1 << SUB_BITS) + sub + 1) << (octave - 1)) - 1,
    }
}

/// What to measure. Mirrors `struct bench_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Config {
    /// At least 1.
    pub threads: u32,
    /// Thread i is pinned to the CPU that is number i modulo this of those it may use; 0: to none.
    pub cpus: u32,
    /// Loop iterations inside the lock, and between release and the next lock.
    pub critical_iterations: u32,
    pub outside_iterations: u32,
    pub warmup_ms: u32,
    pub window_ms: u32,
    /// Not 0: time every wait, at two reads of the clock an acquisition; 0: all waits count as 0.
    pub waits: u32,
    /// At least 1: each turn draws one of so many.
    pub locks: u32,
    /// Not 0, open loop: requests of a thread fall due this far apart on average, and waits begin then.
    pub gap_us: u32,
    /// Not 0: threads with even numbers fill a queue of so many places and the others empty it, with
    /// condition variables.
    pub places: u32,
    /// Threads beside that only compute, pinned to CPUs in turn.
    pub busy: u32,
    /// Not 0: all threads are SCHED_RR, so that no program of another class runs in the window.
    pub realtime: u32,
}

/// What one thread did. Mirrors `struct bench_thread`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Thread {
    /// Acquisitions since the start.
    pub all: u64,
    /// Those in the window.
    pub acquisitions: u64,
    /// 1: it waits when the window ends; `wait_hist` counts how long it has until then.
    pub unfinished: u64,
    pub wait_hist: [u64; BUCKETS],
}

/// The measuring time by both clocks, and the CPU time of the threads that use the lock. Mirrors
/// `struct bench_window`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Window {
    pub ns: u64,
    pub ticks: u64,
    pub cpu_ns: u64,
}

/// A lock or a peer of this build.
pub struct Subject {
    pub name: &'static str,
    /// Not one of `core/locks/`.
    pub peer: bool,
    run: unsafe extern "C" fn(*const Config, *mut Thread, *mut Window, *mut Counts) -> i32,
}

include!(concat!(env!("OUT_DIR"), "/subjects.rs"));

/// The subject with this name.
pub fn subject(name: &str) -> Option<&'static Subject> {
    SUBJECTS.iter().find(|s| s.name == name)
}

/// One measurement.
#[derive(Debug, Clone)]
pub struct Measured {
    pub window: Window,
    pub threads: Vec<Thread>,
}

/// Runs `subject` once. Errors if threads cannot be created or pinned, and `EPROTO` if the lock let
/// two threads in at the same time.
pub fn run(subject: &Subject, config: &Config) -> io::Result<Measured> {
    measured(subject, config).map(|(measured, _)| measured)
}

/// Runs a lock of [`COUNTED`] once, counting. As [`run`], and an error for more than 64 threads.
pub fn count(lock: &Subject, config: &Config) -> io::Result<Counts> {
    measured(lock, config).map(|(_, counts)| counts)
}

fn measured(subject: &Subject, config: &Config) -> io::Result<(Measured, Counts)> {
    if config.threads == 0 || config.locks == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a bench has at least 1 thread and 1 lock",
        ));
    }
    let none = Thread { all: 0, acquisitions: 0, unfinished: 0, wait_hist: [0; BUCKETS] };
    let mut threads = vec![none; config.threads as usize];
    let (mut window, mut counts) = (Window::default(), Counts::NONE);
    // SAFETY: `threads` has config.threads entries; all outlive the call, which joins its threads
    // (or, on an error at their start, leaves some at a barrier that use none of them).
    let error = unsafe { (subject.run)(config, threads.as_mut_ptr(), &mut window, &mut counts) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    Ok((Measured { window, threads }, counts))
}

/// Buckets of [`Counts`].
const COUNTS_BUCKETS: usize = 48;

/// What waiting for a lock was like. Mirrors `struct unspin_lock_stats_counts` of `core/locks/stats.h`, where the
/// words are defined.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub acquisitions: u64,
    pub stalls_held: u64,
    pub stalls_free: u64,
    pub overtakes_running: u64,
    pub overtakes_off: u64,
    pub overtakes_back: u64,
    pub returned: u64,
    pub by_share: [u64; 11],
    pub waits: [u64; COUNTS_BUCKETS],
    pub violations: [u64; COUNTS_BUCKETS],
}

impl Counts {
    const NONE: Counts = Counts {
        acquisitions: 0,
        stalls_held: 0,
        stalls_free: 0,
        overtakes_running: 0,
        overtakes_off: 0,
        overtakes_back: 0,
        returned: 0,
        by_share: [0; 11],
        waits: [0; COUNTS_BUCKETS],
        violations: [0; COUNTS_BUCKETS],
    };
}

impl Measured {
    /// Acquisitions a second, all threads.
    pub fn throughput(&self) -> f64 {
        let all: u64 = self.threads.iter().map(|t| t.acquisitions).sum();
        all as f64 * 1e9 / self.window.ns.max(1) as f64
    }

    /// Most acquisitions of a thread divided by the fewest; infinite if one had none.
    pub fn max_min(&self) -> f64 {
        let counts = || self.threads.iter().map(|t| t.acquisitions);
        match (counts().max(), counts().min()) {
            (Some(max), Some(min)) if min > 0 => max as f64 / min as f64,
            _ => f64::INFINITY,
        }
    }

    /// Waits that had not ended when the window did.
    pub fn unfinished(&self) -> u64 {
        self.threads.iter().map(|t| t.unfinished).sum()
    }

    /// CPU seconds per million acquisitions; infinite without acquisitions.
    pub fn cpu_s_per_million(&self) -> f64 {
        let all: u64 = self.threads.iter().map(|t| t.acquisitions).sum();
        self.window.cpu_ns as f64 / 1e3 / all as f64
    }

    /// Waits by bucket, of all threads.
    fn waits(&self) -> [u64; BUCKETS] {
        let mut sum = [0; BUCKETS];
        for t in &self.threads {
            for (to, from) in sum.iter_mut().zip(t.wait_hist) {
                *to += from;
            }
        }
        sum
    }

    fn ns(&self, ticks: f64) -> f64 {
        ticks * self.window.ns as f64 / self.window.ticks.max(1) as f64
    }

    /// The mean wait weighted by time, ns: how long the wait is, on average, in which a waiting thread is
    /// found. Weighted by acquisitions, the waits of those that wait most would hardly count. 0 without
    /// waits; up to a sixteenth too long.
    pub fn wait_by_time_ns(&self) -> f64 {
        let (mut time, mut squares) = (0.0, 0.0);
        for (bucket, count) in self.waits().iter().enumerate() {
            let ticks = bucket_end_ticks(bucket) as f64;
            time += ticks * *count as f64;
            squares += ticks * ticks * *count as f64;
        }
        match time > 0.0 {
            true => self.ns(squares / time),
            false => 0.0,
        }
    }

    /// The `share` quantile (0..=1) of the waits, ns, rounded up to the end of its bucket; 0 without
    /// waits. A wait that outlasts the window counts as long as it was at the window's end.
    pub fn wait_ns(&self, share: f64) -> f64 {
        let sum = self.waits();
        let all: u64 = sum.iter().sum();
        let rank = (all as f64 * share.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in sum.iter().enumerate() {
            seen += count;
            if seen >= rank && *count > 0 {
                return self.ns(bucket_end_ticks(bucket) as f64);
            }
        }
        0.0
    }
}
