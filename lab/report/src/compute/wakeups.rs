// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lateness of host tasks that wake up beside the VMs.

use crate::read::dedupe::point_of;
use crate::stat::{median, round};
use crate::summary::WakeupRow;
use unspin_scenario::result::{RunResult, Wakeups};

/// A row per arm and point, for the runs with such tasks.
pub(crate) fn wakeups(runs: &[&RunResult]) -> Vec<WakeupRow> {
    let with_tasks: Vec<&RunResult> =
        runs.iter().copied().filter(|r| r.wakeups.is_some() && !r.run.alone).collect();
    let mut rows: Vec<WakeupRow> = Vec::new();
    for r in &with_tasks {
        if rows.iter().any(|row| is_of(row, r)) {
            continue;
        }
        let like =
            |x: &&&RunResult| (point_of(x), &x.run.arm.name) == (point_of(r), &r.run.arm.name);
        let repeats: Vec<Wakeups> =
            with_tasks.iter().filter(like).filter_map(|r| r.wakeups).collect();
        rows.push(figures(r, &repeats));
    }
    let baselines: Vec<Option<f64>> = rows.iter().map(|row| baseline_p99(row, &rows)).collect();
    for (row, baseline) in rows.iter_mut().zip(baselines) {
        row.p99_against_baseline = baseline.map(|p99_us| round(row.p99_us / p99_us));
    }
    rows
}

fn is_of(row: &WakeupRow, r: &RunResult) -> bool {
    row.at == point_of(r) && row.arm == r.run.arm.name
}

/// Medians over the repeats of a run; for the maximum, the largest of all.
fn figures(r: &RunResult, repeats: &[Wakeups]) -> WakeupRow {
    let us = |ns: u64| ns as f64 / 1000.0;
    let middle = |of: fn(&Wakeups) -> u64| {
        median(&repeats.iter().map(|w| us(of(w))).collect::<Vec<_>>()).map_or(0.0, round)
    };
    WakeupRow {
        at: point_of(r),
        arm: r.run.arm.name.clone(),
        baseline: r.run.baseline.clone(),
        count: repeats.iter().map(|w| w.count).sum(),
        p50_us: middle(|w| w.p50_ns),
        p99_us: middle(|w| w.p99_ns),
        max_us: repeats.iter().map(|w| round(us(w.max_ns))).fold(0.0, f64::max),
        p99_against_baseline: None,
    }
}

/// The p99 of the arm with which this one is compared.
fn baseline_p99(row: &WakeupRow, rows: &[WakeupRow]) -> Option<f64> {
    let same = |other: &&WakeupRow| (&other.at, &other.arm) == (&row.at, &row.baseline);
    rows.iter().find(same).map(|other| other.p99_us).filter(|&p99_us| p99_us > 0.0)
}
