// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scores of predictions against measurements, each beside the prediction that nothing changes.

use super::bands::{judged, Judged};
use super::count::{order, Agreement};
use super::row::{rows, Key, Kind, Pair, Row};
use serde::Serialize;
use std::collections::BTreeMap;
use unspin_worlds::no_change_score;

/// Scores of all arms but the baselines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Scores {
    pub arms: usize,
    /// Arms within 10 points of the measurement.
    pub within_10: usize,
    /// The same for the prediction that nothing changes.
    pub within_10_no_change: usize,
    pub order: Order,
    pub worlds: Option<u32>,
    /// The share of 90 % bands that contain the measurement; this and the scores are null without
    /// worlds.
    pub coverage_90: Option<f64>,
    /// 90 % interval of that share, if the arms were independent.
    pub coverage_90_interval: Option<[f64; 2]>,
    /// Mean interval score, in logarithms of ratios, and the score of the prediction that nothing
    /// changes.
    pub interval_score: Option<f64>,
    pub interval_score_no_change: Option<f64>,
    /// Mean absolute logarithm of measured over predicted, and of measured over no change.
    pub log_error: Option<f64>,
    pub log_error_no_change: Option<f64>,
}

/// Pairs of arms that differ by at least 5 points on both machines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Order {
    pub right: usize,
    pub of: usize,
}

/// The scores of all arms together, of each kind, and their inputs.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    #[serde(flatten)]
    together: Scores,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_out: Option<Scores>,
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<Scores>,
    rows: Vec<JudgedRow>,
}

/// One arm that has a band.
#[derive(Debug, Serialize)]
struct JudgedRow {
    scenario: String,
    kernel: String,
    profile: String,
    vms: u32,
    lock: String,
    arm: String,
    /// Whether the model's error was fitted on arms of its kind.
    familiar: bool,
    measured: f64,
    p05: f64,
    p50: f64,
    p95: f64,
    /// Median and standard deviation of the logarithms of the worlds' ratios, without the model's error.
    costs_alone: (f64, f64),
}

pub(super) fn document(pairs: &BTreeMap<Key, Pair>, worlds: Option<u32>) -> Document {
    let row = |j: Judged| JudgedRow {
        scenario: j.key.scenario.clone(),
        kernel: j.key.kernel.clone(),
        profile: j.key.profile.clone(),
        vms: j.key.vms,
        lock: j.key.lock.clone(),
        arm: j.key.arm.clone(),
        familiar: j.is_familiar,
        measured: j.measured,
        p05: j.band.p05,
        p50: j.band.p50,
        p95: j.band.p95,
        costs_alone: j.costs_alone,
    };
    let judged = if worlds.is_some() { judged(pairs) } else { Vec::new() };
    Document {
        together: scores(pairs, worlds),
        held_out: of_kind(pairs, Kind::HeldOut, worlds),
        known: of_kind(pairs, Kind::Known, worlds),
        rows: judged.into_iter().map(row).collect(),
    }
}

/// Scores of the arms of a kind, if any.
pub(super) fn of_kind(
    pairs: &BTreeMap<Key, Pair>,
    kind: Kind,
    worlds: Option<u32>,
) -> Option<Scores> {
    let of: BTreeMap<Key, Pair> =
        pairs.iter().filter(|(k, _)| k.kind == kind).map(|(k, p)| (k.clone(), p.clone())).collect();
    (!of.is_empty()).then(|| scores(&of, worlds))
}

pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let all: Vec<f64> = values.collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// Rows; with worlds, the simulated point is their median.
pub(super) fn points<'a>(pairs: &'a BTreeMap<Key, Pair>, judged: &[Judged]) -> Vec<Row<'a>> {
    let mut rows = rows(pairs);
    let bands: BTreeMap<&Key, f64> = judged.iter().map(|j| (j.key, j.band.p50)).collect();
    for row in &mut rows {
        row.performance.1 = *bands.get(row.key).unwrap_or(&row.performance.1);
    }
    rows
}

pub(super) fn scores(pairs: &BTreeMap<Key, Pair>, worlds: Option<u32>) -> Scores {
    let judged = if worlds.is_some() { judged(pairs) } else { Vec::new() };
    let rows = points(pairs, &judged);
    let (of, right) = order(&rows);
    let all = Agreement::of(&rows.iter().collect::<Vec<&Row>>());
    let covered = judged.iter().filter(|j| j.covers()).count();
    let arms = || rows.iter().filter(|r| !r.is_baseline && r.performance.0 > 0.0);
    let size = |ratio: f64| ratio.ln().abs();
    let foretold = arms().filter(|r| r.performance.1 > 0.0);
    Scores {
        arms: all.arms,
        within_10: all.performance,
        within_10_no_change: arms().filter(|r| r.no_change_agrees()).count(),
        order: Order { right, of },
        worlds,
        coverage_90: mean(judged.iter().map(|j| f64::from(u8::from(j.covers())))),
        coverage_90_interval: unspin_worlds::share_interval(covered, judged.len()),
        interval_score: mean(judged.iter().map(Judged::score)),
        interval_score_no_change: mean(judged.iter().map(|j| no_change_score(j.measured))),
        log_error: mean(foretold.map(|r| size(r.performance.0 / r.performance.1))),
        log_error_no_change: mean(arms().map(|r| size(r.performance.0))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bands::tests::with_worlds;
    use super::super::row::tests::{key, pair};
    use super::*;

    fn of_two_kinds() -> BTreeMap<Key, Pair> {
        let base: Vec<f64> = (0..100).map(|i| 100.0 + f64::from(i)).collect();
        let times = |by: f64| base.iter().map(|x| x * by).collect::<Vec<_>>();
        let known = |arm| Key { kind: Kind::Known, ..key(arm) };
        let held_out = |arm| Key { kind: Kind::HeldOut, ..key(arm) };
        BTreeMap::from([
            (known("stock"), with_worlds(100.0, &base, true)),
            (known("hvs"), with_worlds(120.0, &times(1.2), false)),
            (held_out("stock"), with_worlds(100.0, &base, true)),
            (held_out("off"), with_worlds(300.0, &times(0.8), false)),
        ])
    }

    #[test]
    fn kinds_are_scored_apart_and_together() {
        let pairs = of_two_kinds();
        let of = |kind| of_kind(&pairs, kind, Some(100)).unwrap();
        let (known, held_out) = (of(Kind::Known), of(Kind::HeldOut));
        let (given, together) = (of_kind(&pairs, Kind::Given, None), scores(&pairs, Some(100)));
        assert_eq!(given, None);
        assert_eq!((known.arms, known.within_10, known.coverage_90), (1, 1, Some(1.0)));
        assert_eq!((held_out.arms, held_out.within_10, held_out.coverage_90), (1, 0, Some(0.0)));
        assert_eq!((together.arms, together.within_10, together.coverage_90), (2, 1, Some(0.5)));
        let mean = (known.interval_score.unwrap() + held_out.interval_score.unwrap()) / 2.0;
        assert!((together.interval_score.unwrap() - mean).abs() < 1e-9);
        assert!(known.interval_score < known.interval_score_no_change);
        assert!(known.log_error < known.log_error_no_change);
        // The measured 1.2 is 20 points from no change, so it is not within 10.
        assert_eq!(known.within_10_no_change, 0);
    }

    #[test]
    fn without_worlds_there_are_points_only() {
        let pairs = BTreeMap::from([
            (key("stock"), pair(100.0, 50.0, true)),
            (key("hvs"), pair(120.0, 62.0, false)),
        ]);
        let s = scores(&pairs, None);
        assert_eq!((s.arms, s.within_10, s.coverage_90, s.interval_score), (1, 1, None, None));
        assert_eq!(s.coverage_90_interval, None);
    }
}
