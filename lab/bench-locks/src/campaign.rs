// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many measurements, interleaved. Each is appended to a file, so that a run can be stopped and
//! continued, or divided into shards on a computer that is quiet only at times.

use crate::bench::{run, Config, Subject};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::time::Instant;

/// Threads a CPU that are compared.
pub const LEVELS: [u32; 4] = [1, 2, 4, 8];
/// The level whose fairness counts.
pub const FAIR_LEVEL: u32 = 4;
/// Identifies the code of this build.
pub const CODE: &str = env!("UNSPIN_BENCH_CODE");

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    pub cpus: u32,
    /// Runs of each lock at each level.
    pub runs: u32,
    pub window_ms: u32,
    /// Window of the runs for fairness.
    pub fair_window_ms: u32,
    pub critical_iterations: u32,
    pub outside_iterations: u32,
    /// [`CODE`] of the build that measures.
    pub code: String,
}

/// What one measurement is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// One thread alone, nothing inside the lock or outside.
    Uncontended,
    /// This many threads a CPU.
    Level(u32),
    /// As the level [`FAIR_LEVEL`], over the long window.
    Fair,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub lock: String,
    pub part: Part,
    pub run: u32,
    pub throughput_per_s: f64,
    pub p50_wait_ns: f64,
    pub p99_wait_ns: f64,
    pub p999_wait_ns: f64,
    pub max_wait_ns: f64,
    /// Waits that the window ended before they did; the figures above count them as long as they were.
    pub unfinished_waits: u64,
    /// Most acquisitions of a thread over fewest; `None`: a thread got nothing.
    pub max_min: Option<f64>,
}

type Key = (u32, Part, String);

impl Setup {
    fn config(&self, part: Part) -> Config {
        let (threads, window_ms) = match part {
            Part::Uncontended => (1, self.window_ms),
            Part::Level(level) => (level * self.cpus, self.window_ms),
            Part::Fair => (FAIR_LEVEL * self.cpus, self.fair_window_ms),
        };
        let alone = part == Part::Uncontended;
        Config {
            threads,
            cpus: self.cpus,
            critical_iterations: if alone { 0 } else { self.critical_iterations },
            outside_iterations: if alone { 0 } else { self.outside_iterations },
            warmup_ms: 20,
            window_ms,
            waits: u32::from(!alone),
        }
    }

    /// Every measurement, in order: run by run, level by level, the locks rotated by the run's number
    /// so that none always follows the same one; the long ones for fairness last.
    fn order(&self, subjects: &[&'static Subject]) -> Vec<(u32, Part, &'static Subject)> {
        let parts = || [Part::Uncontended].into_iter().chain(LEVELS.map(Part::Level));
        let rotated = |run: u32| {
            let n = subjects.len().max(1);
            (0..subjects.len()).map(move |i| subjects[(i + run as usize) % n])
        };
        let short = (0..self.runs)
            .flat_map(|run| parts().flat_map(move |p| rotated(run).map(move |s| (run, p, s))));
        short.chain(rotated(0).map(|s| (0, Part::Fair, s))).collect()
    }
}

/// The samples in `file`, if they belong to this setup; none if the file is missing or of another
/// setup. An incomplete last line is ignored. Errors of reading.
pub fn read(file: &Path, setup: &Setup) -> io::Result<Vec<Sample>> {
    let lines = match File::open(file) {
        Ok(open) => BufReader::new(open).lines(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let lines: Vec<String> = lines.collect::<io::Result<_>>()?;
    match lines.split_first() {
        Some((first, rest)) if serde_json::from_str::<Setup>(first).is_ok_and(|s| s == *setup) => {
            Ok(rest.iter().filter_map(|line| serde_json::from_str(line).ok()).collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// Runs the measurements that `file` lacks, until `stop_at`. Calls `tell` after each with the
/// number of finished ones and the total. Returns all samples. Errors if a file cannot be written,
/// a lock's threads cannot be created, or a lock let two threads in at the same time.
pub fn measure(
    setup: &Setup,
    subjects: &[&'static Subject],
    file: &Path,
    stop_at: Option<Instant>,
    mut tell: impl FnMut(usize, usize, &str),
) -> io::Result<Vec<Sample>> {
    let mut samples = read(file, setup)?;
    let done: BTreeSet<Key> = samples.iter().map(|s| (s.run, s.part, s.lock.clone())).collect();
    // Rewritten, so that what follows an incomplete line is not lost with it.
    let mut out = File::create(file.with_extension("new"))?;
    writeln!(out, "{}", serde_json::to_string(setup)?)?;
    for sample in &samples {
        writeln!(out, "{}", serde_json::to_string(sample)?)?;
    }
    std::fs::rename(file.with_extension("new"), file)?;
    let mut out = OpenOptions::new().append(true).open(file)?;
    let order = setup.order(subjects);
    for (index, (run_number, part, subject)) in order.iter().enumerate() {
        if done.contains(&(*run_number, *part, subject.name.to_string())) {
            continue;
        }
        if stop_at.is_some_and(|at| Instant::now() >= at) {
            break;
        }
        tell(index, order.len(), subject.name);
        let m = run(subject, &setup.config(*part))
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", subject.name)))?;
        let max_min = m.max_min();
        let sample = Sample {
            lock: subject.name.to_string(),
            part: *part,
            run: *run_number,
            throughput_per_s: m.throughput(),
            p50_wait_ns: m.wait_ns(0.5),
            p99_wait_ns: m.wait_ns(0.99),
            p999_wait_ns: m.wait_ns(0.999),
            max_wait_ns: m.wait_ns(1.0),
            unfinished_waits: m.unfinished(),
            max_min: max_min.is_finite().then_some(max_min),
        };
        writeln!(out, "{}", serde_json::to_string(&sample)?)?;
        samples.push(sample);
    }
    Ok(samples)
}

/// Whether `samples` has every measurement of these subjects.
pub fn complete(setup: &Setup, subjects: &[&'static Subject], samples: &[Sample]) -> bool {
    let done: BTreeSet<(u32, Part, &str)> =
        samples.iter().map(|s| (s.run, s.part, s.lock.as_str())).collect();
    setup.order(subjects).iter().all(|(run, part, s)| done.contains(&(*run, *part, s.name)))
}
