// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many measurements, interleaved. Each is appended to a file, so that a run can be stopped and
//! continued, or divided into shards on a computer that is quiet only at times.

use crate::bench::{run, Config, Subject};
use crate::machine::Used;
use crate::workload::{Part, Setup};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Identifies the code of this build.
pub const CODE: &str = env!("UNSPIN_BENCH_CODE");

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub lock: String,
    pub part: Part,
    pub run: u32,
    pub throughput_per_s: f64,
    /// CPU time of the threads that use the lock; `None` without acquisitions.
    pub cpu_s_per_million: Option<f64>,
    pub p50_wait_ns: f64,
    pub p99_wait_ns: f64,
    pub p999_wait_ns: f64,
    /// The longest.
    pub max_wait_ns: f64,
    /// The mean weighted by time.
    pub wait_by_time_ns: f64,
    /// Waits that the window ended before they did; the figures above count them as long as they were.
    pub unfinished_waits: u64,
    /// Most acquisitions of a thread over fewest; `None`: a thread got nothing.
    pub max_min: Option<f64>,
    /// CPUs that other programs and the host used meanwhile.
    pub others_cpus: f64,
}

type Key = (u32, Part, String);

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

fn sample(subject: &Subject, part: Part, number: u32, config: &Config) -> io::Result<Sample> {
    // Other programs run as long as this one, so that none is starved.
    if config.realtime != 0 {
        std::thread::sleep(Duration::from_millis(config.window_ms.into()));
    }
    let before = Used::now();
    let m = run(subject, config)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", subject.name)))?;
    let finite = |figure: f64| figure.is_finite().then_some(figure);
    Ok(Sample {
        lock: subject.name.to_string(),
        part,
        run: number,
        throughput_per_s: m.throughput(),
        cpu_s_per_million: finite(m.cpu_s_per_million()),
        p50_wait_ns: m.wait_ns(0.5),
        p99_wait_ns: m.wait_ns(0.99),
        p999_wait_ns: m.wait_ns(0.999),
        max_wait_ns: m.wait_ns(1.0),
        wait_by_time_ns: m.wait_by_time_ns(),
        unfinished_waits: m.unfinished(),
        max_min: finite(m.max_min()),
        others_cpus: before.by_others_since(),
    })
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
    for (index, (number, part, subject)) in order.iter().enumerate() {
        if done.contains(&(*number, *part, subject.name.to_string())) {
            continue;
        }
        if stop_at.is_some_and(|at| Instant::now() >= at) {
            break;
        }
        tell(index, order.len(), subject.name);
        let sample = sample(subject, *part, *number, &setup.config(*part))?;
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
