// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distinguishes an emulator that hangs from one that gets no CPU time. Silence is measured by the
//! emulator's CPU time, because real time passes also while a busy computer does not run it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use unspin_host::Host;

/// Limits of silence, after which a boot counts as hung.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// CPU time of the emulator from power-on to the first record. Growing console output restarts
    /// the count, here and in `record`.
    pub boot: Duration,
    /// CPU time of the emulator between two records after that.
    pub record: Duration,
    /// Real time between two records. An emulator whose computer waits uses no CPU time, and one
    /// that only writes to its console makes no progress.
    pub wall: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let [boot, record, wall] = [600, 900, 4 * 3600].map(Duration::from_secs);
        Patience { boot, record, wall }
    }
}

/// The present silence of an emulator.
pub(crate) struct Silence {
    pid: u32,
    console: PathBuf,
    console_bytes: u64,
    /// CPU time of the process at the last record or growth of its console.
    cpu: Duration,
    since: Instant,
}

/// A silence above the limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TooLong {
    pub real: Duration,
    pub cpu: Duration,
}

impl Silence {
    /// Starts for the emulator with this process id, whose console goes to the file `console`.
    pub(crate) fn of(pid: u32, console: &Path) -> Silence {
        Silence {
            pid,
            console: console.into(),
            console_bytes: 0,
            cpu: cpu_time(pid).unwrap_or_default(),
            since: Instant::now(),
        }
    }

    /// Restarts at a record.
    pub(crate) fn end(&mut self) {
        self.since = Instant::now();
        self.cpu = cpu_time(self.pid).unwrap_or(self.cpu);
    }

    /// Whether it has been silent for `cpu` of its CPU time, or for `wall` of real time.
    pub(crate) fn look(&mut self, cpu: Duration, wall: Duration) -> Option<TooLong> {
        // Other code detects an emulator that has ended.
        let now = cpu_time(self.pid).unwrap_or(self.cpu);
        let bytes = fs::metadata(&self.console).map_or(0, |m| m.len());
        if bytes > self.console_bytes {
            (self.console_bytes, self.cpu) = (bytes, now);
        }
        let silent = TooLong { real: self.since.elapsed(), cpu: now.saturating_sub(self.cpu) };
        (silent.cpu > cpu || silent.real > wall).then_some(silent)
    }
}

/// User and system time of a process.
fn cpu_time(pid: u32) -> Option<Duration> {
    Host::at(Path::new("/proc")).cpu_time_ns(pid).map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_this_process_grows_with_work_and_not_with_sleep() {
        let pid = std::process::id();
        let before = cpu_time(pid).unwrap();
        let start = Instant::now();
        while cpu_time(pid).unwrap() < before + Duration::from_millis(100) {
            assert!(start.elapsed() < Duration::from_secs(60), "work is not counted");
        }
        assert_eq!(cpu_time(u32::MAX), None);
    }
}
