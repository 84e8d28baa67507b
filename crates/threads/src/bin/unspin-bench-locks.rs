// SPDX-License-Identifier: MIT OR Apache-2.0
//! `make bench-locks`: every lock of ours and the peers, interleaved, at 1, 2, 4 and 8 threads a CPU;
//! medians, spread and ratios to the terminal and to summary.json.

use clap::Parser;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use unspin_threads::bench::{run, Config, SUBJECTS};

const LEVELS: [u32; 4] = [1, 2, 4, 8];
/// A short critical section and as much outside it: bound by the lock.
const CRITICAL_ITERATIONS: u32 = 100;
const OUTSIDE_ITERATIONS: u32 = 100;
/// Most acquisitions of a thread over fewest that a best lock may have at 4 threads a CPU.
const FAIR: f64 = 2.0;

#[derive(Parser)]
struct Args {
    /// Where summary.json goes.
    #[arg(long, default_value = "out/bench-locks")]
    out: PathBuf,
    /// Runs of each lock at each level, interleaved.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Length of a measuring window, ms.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    window_ms: u32,
    /// Only these locks and peers.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// One lock at one level, medians over the runs.
#[derive(Debug, Clone, Serialize)]
struct Row {
    lock: &'static str,
    peer: bool,
    /// Threads a CPU; 0: one thread alone, nothing inside the lock or outside.
    oversubscription: u32,
    runs: usize,
    throughput_per_s: f64,
    throughput_min: f64,
    throughput_max: f64,
    /// Upper end of the histogram bucket that the 99th percentile is in, TSC ticks.
    p99_wait_ticks: f64,
    /// `None`: a thread got nothing in the median run.
    max_min: Option<f64>,
}

#[derive(Serialize)]
struct Ratios {
    throughput: f64,
    /// Over 1: our waits are shorter.
    p99_wait: f64,
}

#[derive(Serialize)]
struct Summary {
    machine: &'static str,
    cpus: u32,
    runs: u32,
    window_ms: u32,
    /// Runnable tasks, mean over the minute before: figures from a busy computer tell nothing.
    load_average: f64,
    preemptable_vs_ticket: Option<f64>,
    pv_preemptable_vs_ticket: Option<f64>,
    pv_preemptable_vs_pv: Option<f64>,
    /// Time of lock and unlock of the best lock over that of pthread_spin.
    uncontended_vs_pthread_spin: Option<f64>,
    best_vs_best_peer: BTreeMap<String, Ratios>,
    best_lock: Option<&'static str>,
    best_lock_max_min_at_4: Option<f64>,
    rows: Vec<Row>,
}

#[derive(Default)]
struct Samples {
    throughput: Vec<f64>,
    p99: Vec<f64>,
    max_min: Vec<f64>,
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

fn measure(args: &Args, cpus: u32) -> std::io::Result<Vec<Row>> {
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|o| o == name);
    let subjects: Vec<_> = SUBJECTS.iter().filter(|s| wanted(s.name)).collect();
    let mut samples: BTreeMap<(u32, usize), Samples> = BTreeMap::new();
    for turn in 0..args.runs as usize {
        for level in [0].into_iter().chain(LEVELS) {
            for i in 0..subjects.len() {
                // Rotated, so that no lock always follows the same one.
                let i = (i + turn) % subjects.len();
                let alone = level == 0;
                let config = Config {
                    threads: if alone { 1 } else { level * cpus },
                    cpus,
                    critical_iterations: if alone { 0 } else { CRITICAL_ITERATIONS },
                    outside_iterations: if alone { 0 } else { OUTSIDE_ITERATIONS },
                    warmup_ms: 20,
                    window_ms: args.window_ms,
                    waits: u32::from(!alone),
                };
                let m = run(subjects[i], &config).map_err(|e| {
                    std::io::Error::new(e.kind(), format!("{}: {e}", subjects[i].name))
                })?;
                let s = samples.entry((level, i)).or_default();
                s.throughput.push(m.throughput());
                s.p99.push(m.wait_ticks(0.99) as f64);
                s.max_min.push(m.max_min());
            }
        }
        eprintln!("run {} of {}", turn + 1, args.runs);
    }
    let row = |(&(oversubscription, i), s): (&(u32, usize), &Samples)| {
        let max_min = median(&s.max_min);
        Row {
            lock: subjects[i].name,
            peer: subjects[i].peer,
            oversubscription,
            runs: s.throughput.len(),
            throughput_per_s: median(&s.throughput),
            throughput_min: s.throughput.iter().copied().fold(f64::INFINITY, f64::min),
            throughput_max: s.throughput.iter().copied().fold(0.0, f64::max),
            p99_wait_ticks: median(&s.p99),
            max_min: max_min.is_finite().then_some(max_min),
        }
    };
    Ok(samples.iter().map(row).collect())
}

fn find<'a>(rows: &'a [Row], lock: &str, level: u32) -> Option<&'a Row> {
    rows.iter().find(|r| r.lock == lock && r.oversubscription == level)
}

/// Geometric mean over the oversubscribed levels of a's throughput over b's.
fn against(rows: &[Row], a: &str, b: &str) -> Option<f64> {
    let mut log = 0.0;
    for level in [2, 4, 8] {
        let (a, b) = (find(rows, a, level)?, find(rows, b, level)?);
        if b.throughput_per_s <= 0.0 || a.throughput_per_s <= 0.0 {
            return None;
        }
        log += (a.throughput_per_s / b.throughput_per_s).ln();
    }
    Some((log / 3.0).exp())
}

/// The best peer's throughput, and the best peer's p99 wait (not of one and the same peer).
fn best_peer(rows: &[Row], level: u32) -> Option<(f64, f64)> {
    let peers = || rows.iter().filter(|r| r.peer && r.oversubscription == level);
    let throughput = peers().map(|r| r.throughput_per_s).reduce(f64::max)?;
    // A peer that did nothing waited for nothing.
    let p99 = peers().map(|r| r.p99_wait_ticks).filter(|p| *p > 0.0).reduce(f64::min)?;
    Some((throughput, p99))
}

/// Of our locks that are fair at 4, else of all of ours, the one with the best throughput against the
/// best peer's, geometric mean over the levels.
fn best_lock(rows: &[Row]) -> Option<&'static str> {
    let score = |lock: &str| -> Option<f64> {
        LEVELS.iter().try_fold(0.0, |log, &level| {
            let ratio = find(rows, lock, level)?.throughput_per_s / best_peer(rows, level)?.0;
            Some(log + ratio.ln())
        })
    };
    let ours: Vec<&Row> = rows.iter().filter(|r| !r.peer && r.oversubscription == 4).collect();
    let fair: Vec<&Row> =
        ours.iter().copied().filter(|r| r.max_min.is_some_and(|m| m <= FAIR)).collect();
    let pool = if fair.is_empty() { ours } else { fair };
    let scored = pool.iter().filter_map(|r| Some((score(r.lock)?, r.lock)));
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, lock)| lock)
}

/// The first field of /proc/loadavg; 0 where there is none.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0)
}

fn summarise(args: &Args, cpus: u32, load_average: f64, rows: Vec<Row>) -> Summary {
    let best = best_lock(&rows);
    let mut best_vs_best_peer = BTreeMap::new();
    for level in LEVELS {
        let ours = best.and_then(|lock| find(&rows, lock, level));
        if let (Some(ours), Some((throughput, p99))) = (ours, best_peer(&rows, level)) {
            let ratios = Ratios {
                throughput: ours.throughput_per_s / throughput,
                p99_wait: p99 / ours.p99_wait_ticks,
            };
            best_vs_best_peer.insert(level.to_string(), ratios);
        }
    }
    let uncontended = best.and_then(|lock| {
        Some(
            find(&rows, "pthread_spin", 0)?.throughput_per_s
                / find(&rows, lock, 0)?.throughput_per_s,
        )
    });
    Summary {
        machine: "threads",
        cpus,
        runs: args.runs,
        window_ms: args.window_ms,
        load_average,
        preemptable_vs_ticket: against(&rows, "preemptable", "ck_ticket"),
        pv_preemptable_vs_ticket: against(&rows, "pv_preemptable", "ck_ticket"),
        pv_preemptable_vs_pv: against(&rows, "pv_preemptable", "pv_ticket"),
        uncontended_vs_pthread_spin: uncontended,
        best_vs_best_peer,
        best_lock: best,
        best_lock_max_min_at_4: best.and_then(|lock| find(&rows, lock, 4)?.max_min),
        rows,
    }
}

fn print(s: &Summary) {
    println!(
        "{:>16} {:>2} {:>12} {:>12} {:>12} {:>12} {:>8}",
        "lock", "x", "per s", "min", "max", "p99 ticks", "max/min"
    );
    for r in &s.rows {
        let max_min = r.max_min.map_or("-".to_string(), |m| format!("{m:.2}"));
        println!(
            "{:>16} {:>2} {:>12.0} {:>12.0} {:>12.0} {:>12.0} {:>8}",
            r.lock,
            r.oversubscription,
            r.throughput_per_s,
            r.throughput_min,
            r.throughput_max,
            r.p99_wait_ticks,
            max_min
        );
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let load = load_average();
    if load > 0.5 {
        eprintln!("load average {load}: something else runs here, the figures will tell nothing");
    }
    let made = measure(&args, cpus).and_then(|rows| {
        let summary = summarise(&args, cpus, load, rows);
        print(&summary);
        std::fs::create_dir_all(&args.out)?;
        let file = args.out.join("summary.json");
        std::fs::write(&file, serde_json::to_vec_pretty(&summary)?)?;
        println!("{}", file.display());
        Ok(())
    });
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("unspin-bench-locks: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(lock: &'static str, peer: bool, level: u32, per_s: f64, p99: f64, max_min: f64) -> Row {
        Row {
            lock,
            peer,
            oversubscription: level,
            runs: 1,
            throughput_per_s: per_s,
            throughput_min: per_s,
            throughput_max: per_s,
            p99_wait_ticks: p99,
            max_min: Some(max_min),
        }
    }

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[1.0, f64::INFINITY, f64::INFINITY]), f64::INFINITY);
    }

    #[test]
    fn means_are_geometric_over_oversubscribed_levels() {
        let mut rows = Vec::new();
        for (level, ours) in [(1, 1000.0), (2, 1.0), (4, 10.0), (8, 100.0)] {
            rows.push(row("a", false, level, ours, 1.0, 1.0));
            rows.push(row("b", true, level, 1.0, 1.0, 1.0));
        }
        assert!((against(&rows, "a", "b").unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(against(&rows, "a", "c"), None);
    }

    #[test]
    fn the_best_lock_is_fair_if_one_is() {
        let mut rows = Vec::new();
        for level in LEVELS {
            rows.push(row("fast", false, level, 9.0, 1.0, 2.1));
            rows.push(row("fair", false, level, 5.0, 4.0, 1.9));
            rows.push(row("slow", false, level, 1.0, 4.0, 1.0));
            rows.push(row("peer", true, level, 10.0, 8.0, 9.0));
            rows.push(row("other", true, level, 2.0, 2.0, 9.0));
        }
        assert_eq!(best_lock(&rows), Some("fair"));
        assert_eq!(best_peer(&rows, 4), Some((10.0, 2.0)), "each figure of the best at it");
        rows.retain(|r| r.lock == "fast" || r.peer);
        assert_eq!(best_lock(&rows), Some("fast"));
    }
}
