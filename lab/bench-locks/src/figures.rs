// SPDX-License-Identifier: MIT OR Apache-2.0
//! Medians and spread of samples, and the ratios of summary.json.

use crate::bench::Subject;
use crate::campaign::Sample;
use crate::machine;
use crate::median::median;
use crate::programs::Ratio;
use crate::workload::{Part, Setup, LEVELS, WORKLOADS};
use serde::Serialize;
use std::collections::BTreeMap;

/// Most acquisitions of a thread over fewest that a best lock may have.
const FAIR: f64 = 2.0;
/// CPUs in use by others, from which on figures are said to be taken beside load.
const BESIDE_LOAD: f64 = 0.1;
/// The lock that programs should take, and the peer that its waits are compared with.
const OURS: &str = "lease";
const PARKING: &str = "parking_lot";

/// One lock in one part, medians over the runs.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub lock: &'static str,
    pub peer: bool,
    pub part: Part,
    pub runs: usize,
    pub throughput_per_s: f64,
    pub throughput_min: f64,
    pub throughput_max: f64,
    /// Of lock and unlock, in the part without others.
    pub uncontended_ns: Option<f64>,
    /// `None`: nothing was done in the median run.
    pub cpu_s_per_million: Option<f64>,
    pub p50_wait_ns: f64,
    pub p99_wait_ns: f64,
    pub p99_wait_min_ns: f64,
    pub p99_wait_max_ns: f64,
    pub p999_wait_ns: f64,
    /// The longest wait of a run, median and most.
    pub max_wait_ns: f64,
    pub max_wait_max_ns: f64,
    /// The mean wait weighted by time.
    pub wait_by_time_ns: f64,
    /// Of all runs.
    pub unfinished_waits: u64,
    /// `None`: a thread got nothing in the median run.
    pub max_min: Option<f64>,
    /// CPUs that other programs and the host used, mean.
    pub others_cpus: f64,
}

/// Of a lock to the best peer, each figure to the peer that is best at it; over 1: ours is better.
#[derive(Debug, Serialize)]
pub struct Ratios {
    pub throughput: f64,
    pub p99_wait: f64,
}

/// What else ran on the computer.
#[derive(Debug, Serialize)]
pub struct Load {
    /// Tasks that run or want to, mean over the minute before.
    pub load_average: f64,
    /// CPUs that other programs and the host used during the measurements, mean.
    pub others_cpus: f64,
    /// The figures are those of a busy computer.
    pub beside_load: bool,
    /// The bench's nice value.
    pub nice: i32,
}

/// What `make bench-locks` leaves in summary.json.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub machine: &'static str,
    pub setup: Setup,
    /// All measurements are in it.
    pub complete: bool,
    #[serde(flatten)]
    pub load: Load,
    /// Geometric means over 2, 4 and 8 threads a CPU; ticket is Concurrency Kit's, pv is pv_ticket_2048.
    pub preemptable_vs_ticket: Option<f64>,
    pub pv_preemptable_vs_ticket: Option<f64>,
    pub pv_preemptable_vs_pv: Option<f64>,
    /// One thread a CPU; 1: as fast as ck's ticket lock, 0.97: 3 % slower.
    pub preemptable_vs_ticket_at_1: Option<f64>,
    /// Time of lock and unlock of the best lock over that of pthread_spin.
    pub uncontended_vs_pthread_spin: Option<f64>,
    pub best_vs_best_peer: BTreeMap<String, Ratios>,
    pub best_lock: Option<&'static str>,
    /// Over the long window.
    pub best_lock_max_min_at_4: Option<f64>,
    pub preemptable_max_min_at_4: Option<f64>,
    /// Of `lease` to parking_lot, by part: the longest waits (under 1: ours is shorter) and throughput.
    pub longest_wait_vs_parking_lot: BTreeMap<String, f64>,
    pub throughput_vs_parking_lot: BTreeMap<String, f64>,
    /// CPU time per acquisition of `lease` to that of the peer that needs least, 4 threads a CPU.
    pub cpu_s_vs_best_peer_at_4: Option<f64>,
    /// Throughput of `lease` to the best peer's, long sections, one thread a CPU.
    pub long_sections_at_1: Option<f64>,
    /// The same by part.
    pub lease_vs_best_peer: BTreeMap<String, f64>,
    /// Speed of programs under `unspin run` to their speed with glibc's locks; `None`: not measured.
    pub run_default_vs_glibc: Option<BTreeMap<&'static str, Ratio>>,
    pub rows: Vec<Row>,
}

/// One row per subject and part that has samples.
pub fn rows(subjects: &[&'static Subject], samples: &[Sample]) -> Vec<Row> {
    let parts = [Part::Uncontended].into_iter().chain(LEVELS.map(Part::Level)).chain(WORKLOADS);
    let parts = parts.chain([Part::Fair]);
    let mut rows = Vec::new();
    for part in parts {
        for subject in subjects {
            let of: Vec<&Sample> =
                samples.iter().filter(|s| s.part == part && s.lock == subject.name).collect();
            if !of.is_empty() {
                rows.push(row(subject, part, &of));
            }
        }
    }
    rows
}

fn row(subject: &'static Subject, part: Part, of: &[&Sample]) -> Row {
    let all = |figure: fn(&Sample) -> f64| of.iter().map(|s| figure(s)).collect::<Vec<f64>>();
    let least = |figure| all(figure).into_iter().fold(f64::INFINITY, f64::min);
    let most = |figure| all(figure).into_iter().fold(0.0, f64::max);
    let finite = |figure: f64| figure.is_finite().then_some(figure);
    let throughput = median(&all(|s| s.throughput_per_s));
    Row {
        lock: subject.name,
        peer: subject.peer,
        part,
        runs: of.len(),
        throughput_per_s: throughput,
        throughput_min: least(|s| s.throughput_per_s),
        throughput_max: most(|s| s.throughput_per_s),
        uncontended_ns: (part == Part::Uncontended).then_some(1e9 / throughput),
        cpu_s_per_million: finite(median(&all(|s| s.cpu_s_per_million.unwrap_or(f64::INFINITY)))),
        p50_wait_ns: median(&all(|s| s.p50_wait_ns)),
        p99_wait_ns: median(&all(|s| s.p99_wait_ns)),
        p99_wait_min_ns: least(|s| s.p99_wait_ns),
        p99_wait_max_ns: most(|s| s.p99_wait_ns),
        p999_wait_ns: median(&all(|s| s.p999_wait_ns)),
        max_wait_ns: median(&all(|s| s.max_wait_ns)),
        max_wait_max_ns: most(|s| s.max_wait_ns),
        wait_by_time_ns: median(&all(|s| s.wait_by_time_ns)),
        unfinished_waits: of.iter().map(|s| s.unfinished_waits).sum(),
        max_min: finite(median(&all(|s| s.max_min.unwrap_or(f64::INFINITY)))),
        others_cpus: all(|s| s.others_cpus).iter().sum::<f64>() / of.len().max(1) as f64,
    }
}

fn find<'a>(rows: &'a [Row], lock: &str, part: Part) -> Option<&'a Row> {
    rows.iter().find(|r| r.lock == lock && r.part == part)
}

fn throughput_ratio(rows: &[Row], a: &str, b: &str, part: Part) -> Option<f64> {
    let ratio = find(rows, a, part)?.throughput_per_s / find(rows, b, part)?.throughput_per_s;
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

/// Geometric mean over the oversubscribed levels of a's throughput over b's.
fn against(rows: &[Row], a: &str, b: &str) -> Option<f64> {
    let log = [2, 4, 8].into_iter().try_fold(0.0, |log, level| {
        Some(log + throughput_ratio(rows, a, b, Part::Level(level))?.ln())
    })?;
    Some((log / 3.0).exp())
}

/// The best peer's throughput, and the best peer's p99 wait (not of one and the same peer).
fn best_peer(rows: &[Row], level: u32) -> Option<(f64, f64)> {
    let peers = || rows.iter().filter(|r| r.peer && r.part == Part::Level(level));
    let throughput = peers().map(|r| r.throughput_per_s).reduce(f64::max)?;
    // A peer that did nothing waited for nothing.
    let p99 = peers().map(|r| r.p99_wait_ns).filter(|p| *p > 0.0).reduce(f64::min)?;
    Some((throughput, p99))
}

/// The best lock of core/locks/ against the best peer, by the geometric mean of throughput over the
/// levels; of those that are fair over the long measurement, or else of all.
fn best_lock(rows: &[Row]) -> Option<&'static str> {
    let score = |lock: &str| -> Option<f64> {
        LEVELS.iter().try_fold(0.0, |log, &level| {
            let ours = find(rows, lock, Part::Level(level))?.throughput_per_s;
            Some(log + (ours / best_peer(rows, level)?.0).ln())
        })
    };
    let ours: Vec<&Row> = rows.iter().filter(|r| !r.peer && r.part == Part::Fair).collect();
    let fair: Vec<&Row> =
        ours.iter().copied().filter(|r| r.max_min.is_some_and(|m| m <= FAIR)).collect();
    let pool = if fair.is_empty() { ours } else { fair };
    let scored = pool.iter().filter_map(|r| Some((score(r.lock)?, r.lock)));
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, lock)| lock)
}

/// `figure` of lock `a` over that of `b` in `part`: the median over the runs of the ratio in each run. The
/// two are measured within seconds in a run, and the host may move the CPUs between runs.
fn paired(
    samples: &[Sample],
    a: &str,
    b: &str,
    part: Part,
    figure: fn(&Sample) -> f64,
) -> Option<f64> {
    let of = |lock: &'_ str, run: Option<u32>| {
        let wanted =
            |s: &&Sample| s.lock == lock && s.part == part && run.is_none_or(|r| r == s.run);
        samples.iter().filter(wanted).collect::<Vec<_>>()
    };
    let ratios: Vec<f64> = of(a, None)
        .into_iter()
        .filter_map(|ours| Some(figure(ours) / figure(of(b, Some(ours.run)).first()?)))
        .filter(|ratio| ratio.is_finite())
        .collect();
    (!ratios.is_empty()).then(|| median(&ratios))
}

/// The same for `lease` and parking_lot, by part.
fn against_parking(samples: &[Sample], figure: fn(&Sample) -> f64) -> BTreeMap<String, f64> {
    let ratio = |part| Some((Part::name(part), paired(samples, OURS, PARKING, part, figure)?));
    compared().filter_map(ratio).collect()
}

/// The parts with other threads.
fn compared() -> impl Iterator<Item = Part> {
    LEVELS.map(Part::Level).into_iter().chain(WORKLOADS)
}

/// The same for `lease` and the peer that is best against it, whose ratio `worst` picks of two.
fn against_best_peer(
    samples: &[Sample],
    rows: &[Row],
    part: Part,
    figure: fn(&Sample) -> f64,
    worst: fn(f64, f64) -> f64,
) -> Option<f64> {
    let peers = rows.iter().filter(|r| r.peer && r.part == part);
    peers.filter_map(|r| paired(samples, OURS, r.lock, part, figure)).reduce(worst)
}

/// The load of `samples`, with the load average of before.
pub fn load(samples: &[Sample], load_average: f64) -> Load {
    let sum: f64 = samples.iter().map(|s| s.others_cpus).sum();
    let others_cpus = sum / samples.len().max(1) as f64;
    Load {
        load_average,
        others_cpus,
        beside_load: others_cpus > BESIDE_LOAD,
        nice: machine::nice(),
    }
}

/// What there is to say of `samples`.
pub fn summarise(
    setup: &Setup,
    complete: bool,
    load: Load,
    programs: Option<BTreeMap<&'static str, Ratio>>,
    (subjects, samples): (&[&'static Subject], &[Sample]),
) -> Summary {
    let rows = rows(subjects, samples);
    let best = best_lock(&rows);
    let mut best_vs_best_peer = BTreeMap::new();
    for level in LEVELS {
        let ours = best.and_then(|lock| find(&rows, lock, Part::Level(level)));
        if let (Some(ours), Some((throughput, p99))) = (ours, best_peer(&rows, level)) {
            let ratios = Ratios {
                throughput: ours.throughput_per_s / throughput,
                p99_wait: p99 / ours.p99_wait_ns,
            };
            best_vs_best_peer.insert(level.to_string(), ratios);
        }
    }
    let fairness = |lock: &str| find(&rows, lock, Part::Fair)?.max_min;
    let throughput_at = |a, b, part| throughput_ratio(&rows, a, b, part);
    let speed: fn(&Sample) -> f64 = |s| s.throughput_per_s;
    let cpu: fn(&Sample) -> f64 = |s| s.cpu_s_per_million.unwrap_or(f64::NAN);
    let faster = |part| against_best_peer(samples, &rows, part, speed, f64::min);
    Summary {
        machine: "threads",
        setup: setup.clone(),
        complete,
        load,
        preemptable_vs_ticket: against(&rows, "preemptable", "ck_ticket"),
        pv_preemptable_vs_ticket: against(&rows, "pv_preemptable", "ck_ticket"),
        pv_preemptable_vs_pv: against(&rows, "pv_preemptable", "pv_ticket_2048"),
        preemptable_vs_ticket_at_1: throughput_at("preemptable", "ck_ticket", Part::Level(1)),
        uncontended_vs_pthread_spin: best
            .and_then(|lock| throughput_at("pthread_spin", lock, Part::Uncontended)),
        best_vs_best_peer,
        best_lock: best,
        best_lock_max_min_at_4: best.and_then(fairness),
        preemptable_max_min_at_4: fairness("preemptable"),
        longest_wait_vs_parking_lot: against_parking(samples, |s| s.max_wait_ns),
        throughput_vs_parking_lot: against_parking(samples, speed),
        cpu_s_vs_best_peer_at_4: against_best_peer(samples, &rows, Part::Level(4), cpu, f64::max),
        long_sections_at_1: faster(Part::Long(1)),
        lease_vs_best_peer: compared().filter_map(|p| Some((p.name(), faster(p)?))).collect(),
        run_default_vs_glibc: programs,
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::subject;

    fn sample(lock: &str, part: Part, run: u32, per_s: f64, p99: f64, max_min: f64) -> Sample {
        Sample {
            lock: lock.to_string(),
            part,
            run,
            throughput_per_s: per_s,
            cpu_s_per_million: Some(1.0 / per_s),
            p50_wait_ns: 1.0,
            p99_wait_ns: p99,
            p999_wait_ns: p99,
            max_wait_ns: p99,
            wait_by_time_ns: p99,
            unfinished_waits: 1,
            max_min: max_min.is_finite().then_some(max_min),
            others_cpus: 0.5,
        }
    }

    fn rows_of(names: &[&str], samples: &[Sample]) -> Vec<Row> {
        let subjects: Vec<_> = names.iter().map(|n| subject(n).unwrap()).collect();
        rows(&subjects, samples)
    }

    #[test]
    fn rows_are_medians_with_their_spread() {
        let part = Part::Level(4);
        let samples = [
            sample("tas", part, 0, 3.0, 10.0, 1.0),
            sample("tas", part, 1, 1.0, 30.0, f64::INFINITY),
            sample("tas", part, 2, 2.0, 20.0, f64::INFINITY),
            sample("mcs", part, 0, 9.0, 1.0, 1.0),
        ];
        let rows = rows_of(&["tas", "mcs"], &samples);
        let r = find(&rows, "tas", part).unwrap();
        assert_eq!((r.throughput_per_s, r.throughput_min, r.throughput_max), (2.0, 1.0, 3.0));
        assert_eq!((r.p99_wait_ns, r.p99_wait_min_ns, r.p99_wait_max_ns), (20.0, 10.0, 30.0));
        assert_eq!((r.runs, r.unfinished_waits, r.max_min), (3, 3, None));
        assert_eq!(rows.len(), 2);
    }

    #[test]
    fn means_are_geometric_over_oversubscribed_levels() {
        let mut samples = Vec::new();
        for (level, ours) in [(1, 1000.0), (2, 1.0), (4, 10.0), (8, 100.0)] {
            samples.push(sample("tas", Part::Level(level), 0, ours, 1.0, 1.0));
            samples.push(sample("ck_fas", Part::Level(level), 0, 1.0, 1.0, 1.0));
        }
        let rows = rows_of(&["tas", "ck_fas"], &samples);
        assert!((against(&rows, "tas", "ck_fas").unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(against(&rows, "tas", "ck_mcs"), None);
    }

    #[test]
    fn the_best_lock_is_fair_if_one_is() {
        let mut samples = Vec::new();
        let figures = [
            ("tas", 9.0, 1.0, 2.1),
            ("mcs", 5.0, 4.0, 1.9),
            ("ticket", 1.0, 4.0, 1.0),
            ("ck_fas", 10.0, 8.0, 9.0),
            ("ck_mcs", 2.0, 2.0, 9.0),
        ];
        for (lock, per_s, p99, max_min) in figures {
            for part in LEVELS.map(Part::Level).into_iter().chain([Part::Fair]) {
                // Fairness is of the long window alone.
                let max_min = if part == Part::Fair { max_min } else { 1.0 };
                samples.push(sample(lock, part, 0, per_s, p99, max_min));
            }
        }
        let names = figures.map(|f| f.0);
        let rows = rows_of(&names, &samples);
        assert_eq!(best_lock(&rows), Some("mcs"));
        assert_eq!(best_peer(&rows, 4), Some((10.0, 2.0)), "each figure of the best at it");
        let unfair: Vec<Row> = rows.iter().filter(|r| r.lock == "tas" || r.peer).cloned().collect();
        assert_eq!(best_lock(&unfair), Some("tas"));
    }

    #[test]
    fn lease_is_compared_with_the_best_peer_and_with_parking_lot() {
        let mut samples = Vec::new();
        let figures =
            [("lease", 30.0, 8.0), ("parking_lot", 10.0, 2.0), ("pthread_spin", 40.0, 1.0)];
        // In the second run all CPUs are twice as fast, and one lock was not measured.
        for (run, factor) in [(0, 1.0), (1, 2.0)] {
            for (lock, per_s, longest) in figures.iter().skip(run) {
                for part in [Part::Level(4), Part::Long(1)] {
                    let (per_s, run) = (per_s * factor, run as u32);
                    samples.push(sample(lock, part, run, per_s, *longest, 1.0));
                }
            }
        }
        samples.push(sample("lease", Part::Level(4), 1, 60.0, 8.0, 1.0));
        let rows = rows_of(&["lease", "parking_lot", "pthread_spin"], &samples);
        let waits = against_parking(&samples, |s| s.max_wait_ns);
        assert_eq!(waits, BTreeMap::from([("4x".to_string(), 4.0), ("long 1x".to_string(), 4.0)]));
        let speed: fn(&Sample) -> f64 = |s| s.throughput_per_s;
        let faster = |part| against_best_peer(&samples, &rows, part, speed, f64::min);
        assert_eq!(faster(Part::Long(1)), Some(0.75), "the run without lease does not count");
        assert_eq!(faster(Part::Level(4)), Some(0.75));
        assert_eq!(faster(Part::Long(4)), None);
        let cpu: fn(&Sample) -> f64 = |s| s.cpu_s_per_million.unwrap_or(f64::NAN);
        let most = against_best_peer(&samples, &rows, Part::Level(4), cpu, f64::max).unwrap();
        assert!((most - 40.0 / 30.0).abs() < 1e-9, "{most}");
        let load = load(&samples, 3.0);
        assert_eq!((load.load_average, load.others_cpus, load.beside_load), (3.0, 0.5, true));
        assert!(!super::load(&[], 0.0).beside_load);
    }
}
