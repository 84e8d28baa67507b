// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bands over worlds of the model's own costs against what was measured: how many cover it, and what
//! they score.

use super::count::{order, percent, Agreement, Job};
use super::row::{rows, Key, Pair, Row};
use crate::worlds::time::{self, length_ms};
use crate::worlds::Inputs;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Instant;
use unspin_scenario::plan::{HostModel, Run};
use unspin_sim::{simulate, Costs, Host};
use unspin_worlds::{covers, interval_score, no_change_score, point, Band};

/// Of the sample: all points have the same worlds, and nothing else has these.
const SEED: u64 = 0;

/// The model whose ranges are for a host: the emulated computer's, or a server's.
fn model(host: &Host) -> HostModel {
    match host.costs == Costs::LAB || host.costs == Costs::LAB_EEVDF {
        true => HostModel::Lab,
        false => HostModel::Server,
    }
}

/// A run in so many worlds, the same of all arms.
pub(super) fn jobs(key: &Key, host: &Host, run: &Run, worlds: u32) -> Vec<Job> {
    let inputs = Inputs::of_model(model(host));
    let job = |world| {
        let at = point(world, inputs.all.len(), SEED);
        let costs = host.costs.with(&inputs.costs(&at, &host.costs));
        let run = Run { seed: inputs.seed(&at, SEED), ..run.clone() };
        Job { key: key.clone(), world, host: Host { costs, ..host.clone() }, run }
    };
    (0..worlds).map(job).collect()
}

/// Runs that are timed before the time of all is said.
const TIMED: usize = 6;

/// Says what all of it takes, from the time of a few runs.
pub(super) fn say_time(jobs: &[Job]) -> anyhow::Result<()> {
    let (since, mut timed) = (Instant::now(), 0);
    for job in jobs.iter().step_by((jobs.len() / TIMED).max(1)) {
        // What cannot be simulated is said when it is made.
        let _ = simulate(&job.host, &job.run);
        timed += length_ms(&job.run);
    }
    let all: u64 = jobs.iter().map(|job| length_ms(&job.run)).sum();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let parts = all as f64 / timed.max(1) as f64 / cpus as f64;
    let takes = since.elapsed().as_secs_f64() * parts;
    let what = format!("{} runs", jobs.len());
    Ok(time::say(&what, takes, cpus, "fewer worlds, or fewer files")?)
}

/// Scores of all arms but the baselines.
#[derive(Debug, Serialize)]
pub(super) struct Scores {
    arms: usize,
    /// Arms within 10 points of what was measured.
    within_10: usize,
    order: Order,
    worlds: Option<u32>,
    /// The share of 90 % bands that have what was measured; this and the scores are null without
    /// worlds.
    coverage_90: Option<f64>,
    /// Mean interval score, in logarithms of ratios, and that of who says that nothing changes.
    interval_score: Option<f64>,
    interval_score_no_change: Option<f64>,
    /// Mean size of the logarithm of measured over foretold, and of measured over no change.
    log_error: Option<f64>,
    log_error_no_change: Option<f64>,
}

/// Pairs of arms that both machines tell apart by 5 points.
#[derive(Debug, Serialize)]
struct Order {
    right: usize,
    of: usize,
}

/// An arm's measured ratio, and its band.
struct Judged<'a> {
    key: &'a Key,
    measured: f64,
    band: Band,
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let all: Vec<f64> = values.collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

pub(super) fn scores(pairs: &BTreeMap<Key, Pair>, worlds: Option<u32>) -> Scores {
    let judged = judged(pairs);
    let mut rows = rows(pairs);
    if worlds.is_some() {
        // The point of a band is its median.
        for row in &mut rows {
            let band = judged.iter().find(|j| j.key == row.key).map(|j| j.band.p50);
            row.performance.1 = band.unwrap_or(row.performance.1);
        }
    }
    let (of, right) = order(&rows);
    let all = Agreement::of(&rows.iter().collect::<Vec<&Row>>());
    let with_worlds = |value: Option<f64>| value.filter(|_| worlds.is_some());
    let points = || rows.iter().filter(|r| !r.is_baseline && r.performance.0 > 0.0);
    let size = |ratio: f64| ratio.ln().abs();
    Scores {
        arms: all.arms,
        within_10: all.performance,
        order: Order { right, of },
        worlds,
        coverage_90: with_worlds(mean(judged.iter().map(|j| f64::from(u8::from(j.covers()))))),
        interval_score: with_worlds(mean(judged.iter().map(Judged::score))),
        interval_score_no_change: with_worlds(mean(
            judged.iter().map(|j| no_change_score(j.measured)),
        )),
        log_error: mean(
            points()
                .filter(|r| r.performance.1 > 0.0)
                .map(|r| size(r.performance.0 / r.performance.1)),
        ),
        log_error_no_change: mean(points().map(|r| size(r.performance.0))),
    }
}

impl Judged<'_> {
    fn covers(&self) -> bool {
        covers(self.band.p05, self.band.p95, self.measured)
    }

    fn score(&self) -> f64 {
        interval_score(self.band.p05, self.band.p95, self.measured)
    }
}

/// Arms but the baselines that have a band and did something where they were measured.
fn judged(pairs: &BTreeMap<Key, Pair>) -> Vec<Judged<'_>> {
    let inputs = Inputs::of_model(HostModel::Lab);
    let of = |row: Row<'_>| {
        let same = |k: &Key| Key { arm: row.key.arm.clone(), ..k.clone() } == *row.key;
        let base = pairs.iter().find(|(k, p)| p.is_baseline && same(k)).map(|(_, p)| p);
        let arm = pairs.get(row.key);
        (row.is_baseline, row.performance.0, arm, base)
    };
    let mut all = Vec::new();
    for row in rows(pairs) {
        let key = row.key;
        let (is_baseline, measured, arm, base) = of(row);
        let (Some(arm), Some(base)) = (arm, base) else { continue };
        let outcome = |(world, speed): (&u32, &f64)| {
            let ratio = (speed / base.worlds.get(world)?).ln();
            let at = point(*world, inputs.all.len(), SEED);
            let error = if arm.has_own_ranges { 0.0 } else { inputs.error(&at, ratio) };
            ratio.is_finite().then_some(ratio + error)
        };
        let outcomes: Vec<f64> = arm.worlds.iter().filter_map(outcome).collect();
        if let Some(band) = Band::of(&outcomes).filter(|_| !is_baseline && measured > 0.0) {
            all.push(Judged { key, measured, band });
        }
    }
    all
}

/// The same scores for people, scenario by scenario.
pub(super) fn section(pairs: &BTreeMap<Key, Pair>) -> String {
    let judged = judged(pairs);
    let mut text = "\n## Bands\n\nWhere 90 % of worlds have an arm, against what was measured. The \
                    interval score is in logarithms of ratios: a band's width, and 20 times what it \
                    misses by; less is better. \"No change\" says 1, without a width.\n\n\
                    | scenario | kernel | arms | covered | median width | interval score | no change |\n\
                    |---|---|---|---|---|---|---|\n"
        .to_string();
    let parts: BTreeSet<(&str, &str)> =
        judged.iter().map(|j| (j.key.scenario.as_str(), j.key.kernel.as_str())).collect();
    for part in parts {
        let of: Vec<&Judged> = judged
            .iter()
            .filter(|j| (j.key.scenario.as_str(), j.key.kernel.as_str()) == part)
            .collect();
        let covered = of.iter().filter(|j| j.covers()).count();
        let mut widths: Vec<f64> = of.iter().map(|j| j.band.p95 / j.band.p05).collect();
        widths.sort_by(f64::total_cmp);
        let width = unspin_worlds::quantile(&widths, 0.5).unwrap_or(1.0);
        let score = |value: Option<f64>| value.map_or("-".to_string(), |x| format!("{x:.3}"));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {covered} ({:.0} %) | x {width:.2} | {} | {} |",
            part.0,
            part.1,
            of.len(),
            percent(covered, of.len()),
            score(mean(of.iter().map(|j| j.score()))),
            score(mean(of.iter().map(|j| no_change_score(j.measured)))),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::{key, pair};
    use super::*;

    fn with_worlds(measured: f64, worlds: &[f64], is_baseline: bool) -> Pair {
        let worlds = (0..).zip(worlds.iter().copied()).collect();
        Pair { worlds, ..pair(measured, 100.0, is_baseline) }
    }

    #[test]
    fn bands_are_of_the_same_worlds_and_scored() {
        let base: Vec<f64> = (0..100).map(|i| 100.0 + f64::from(i)).collect();
        let times = |by: f64| base.iter().map(|x| x * by).collect::<Vec<_>>();
        let pairs = BTreeMap::from([
            (key("stock"), with_worlds(100.0, &base, true)),
            (key("hvs"), with_worlds(120.0, &times(1.2), false)),
            (key("off"), with_worlds(300.0, &times(0.8), false)),
        ]);
        let judged = judged(&pairs);
        let of = |arm: &str| judged.iter().find(|j| j.key.arm == arm).unwrap();
        assert_eq!(judged.len(), 2, "the baseline is compared with nothing");
        // The baseline differs by a factor of two between worlds, the ratio by the model's error alone.
        assert!((of("hvs").band.p50 - 1.2).abs() < 0.01 && of("hvs").covers());
        assert!(!of("off").covers() && of("off").score() > 10.0);
        let s = scores(&pairs, Some(100));
        assert_eq!((s.arms, s.within_10, s.coverage_90), (2, 1, Some(0.5)));
        assert!(s.interval_score > s.interval_score_no_change.map(|_| 0.0));
        let without = scores(&pairs, None);
        assert_eq!((without.arms, without.coverage_90), (2, None));
        assert!(section(&pairs).contains("| s-1 | 6.12 | 2 | 1 (50 %) |"));
    }

    #[test]
    fn arms_have_the_same_worlds() {
        let run = Run::new(Vec::new(), 2, 4);
        let host = Host::lab(4, unspin_sim::Kernel::V6_12);
        let (a, b) = (jobs(&key("a"), &host, &run, 20), jobs(&key("b"), &host, &run, 40));
        for (a, b) in a.iter().zip(&b) {
            assert_eq!(
                (a.run.seed, &a.host),
                (b.run.seed, &b.host),
                "and the first of more are the same"
            );
        }
        assert_ne!(a[0].host.costs, a[1].host.costs);
    }
}
