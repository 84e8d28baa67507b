// SPDX-License-Identifier: MIT OR Apache-2.0
//! One measurement of one lock: pinned threads that take it in a loop (`c/bench.c`).

use std::io;

/// Buckets of a wait histogram; bucket b: waits of [2^b, 2^(b+1)) TSC ticks.
pub const BUCKETS: usize = 48;

/// What to measure. Mirrors `struct bench_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// At least 1.
    pub threads: u32,
    /// Thread i is pinned to CPU i modulo this; at least 1.
    pub cpus: u32,
    /// Loop iterations inside the lock, and between release and the next lock.
    pub critical_iterations: u32,
    pub outside_iterations: u32,
    pub warmup_ms: u32,
    pub window_ms: u32,
    /// Not 0: time every wait, at two reads of the clock an acquisition; 0: all waits count as 0.
    pub waits: u32,
}

/// What one thread did. Mirrors `struct bench_thread`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Thread {
    /// Acquisitions since the start.
    pub all: u64,
    /// Those in the window.
    pub acquisitions: u64,
    pub wait_hist: [u64; BUCKETS],
}

/// A lock or a peer as this build has it.
pub struct Subject {
    pub name: &'static str,
    /// Not one of `locks/`.
    pub peer: bool,
    run: unsafe extern "C" fn(*const Config, *mut Thread, *mut u64) -> i32,
}

include!(concat!(env!("OUT_DIR"), "/subjects.rs"));

/// The subject of that name.
pub fn subject(name: &str) -> Option<&'static Subject> {
    SUBJECTS.iter().find(|s| s.name == name)
}

/// One measurement.
#[derive(Debug, Clone)]
pub struct Measured {
    pub window_ns: u64,
    pub threads: Vec<Thread>,
}

/// Runs `subject` once. Errors where threads cannot be made or pinned, and `EPROTO` where the lock let
/// two threads in at a time.
pub fn run(subject: &Subject, config: &Config) -> io::Result<Measured> {
    if config.threads == 0 || config.cpus == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a bench has at least 1 thread and 1 CPU",
        ));
    }
    let none = Thread { all: 0, acquisitions: 0, wait_hist: [0; BUCKETS] };
    let mut threads = vec![none; config.threads as usize];
    let mut window_ns = 0;
    // SAFETY: `threads` has config.threads entries; all three outlive the call, which joins its threads
    // (or, on an error at their start, leaves some at a barrier that use none of them).
    let error = unsafe { (subject.run)(config, threads.as_mut_ptr(), &mut window_ns) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    Ok(Measured { window_ns, threads })
}

impl Measured {
    /// Acquisitions a second, all threads.
    pub fn throughput(&self) -> f64 {
        let all: u64 = self.threads.iter().map(|t| t.acquisitions).sum();
        all as f64 * 1e9 / self.window_ns.max(1) as f64
    }

    /// Most acquisitions of a thread over the fewest; infinite where one had none.
    pub fn max_min(&self) -> f64 {
        let counts = || self.threads.iter().map(|t| t.acquisitions);
        match (counts().max(), counts().min()) {
            (Some(max), Some(min)) if min > 0 => max as f64 / min as f64,
            _ => f64::INFINITY,
        }
    }

    /// Upper end of the bucket that the `share` quantile (0..=1) of the waits is in, ticks; 0 without
    /// waits. Waits are counted when they end: one that outlasts the window is in none.
    pub fn wait_ticks(&self, share: f64) -> u64 {
        let mut sum = [0u64; BUCKETS];
        for t in &self.threads {
            for (to, from) in sum.iter_mut().zip(t.wait_hist) {
                *to += from;
            }
        }
        let all: u64 = sum.iter().sum();
        let rank = (all as f64 * share.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in sum.iter().enumerate() {
            seen += count;
            if seen >= rank && *count > 0 {
                return 1 << (bucket + 1);
            }
        }
        0
    }
}
