// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lateness of host tasks that wake up beside the VMs.

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
        let key = key(r);
        let repeats: Vec<Wakeups> =
            with_tasks.iter().filter(|r| is_of(&key, r)).filter_map(|r| r.wakeups).collect();
        rows.push(figures(key, &repeats));
    }
    let baselines: Vec<Option<f64>> = rows.iter().map(|row| baseline_p99(row, &rows)).collect();
    for (row, baseline) in rows.iter_mut().zip(baselines) {
        row.p99_against_baseline = baseline.map(|p99_us| round(row.p99_us / p99_us));
    }
    rows
}

fn key(r: &RunResult) -> WakeupRow {
    WakeupRow {
        profile: r.run.profile.clone(),
        vms: r.run.vm_count(),
        cgroup: r.run.cgroup,
        lock: r.run.lock_group.clone(),
        arm: r.run.arm.name.clone(),
        baseline: r.run.baseline.clone(),
        count: 0,
        p50_us: 0.0,
        p99_us: 0.0,
        max_us: 0.0,
        p99_against_baseline: None,
    }
}

fn is_of(row: &WakeupRow, r: &RunResult) -> bool {
    let run = &r.run;
    (&row.profile, row.vms, row.cgroup, &row.lock, &row.arm)
        == (&run.profile, run.vm_count(), run.cgroup, &run.lock_group, &run.arm.name)
}

/// Medians over the repeats; for the maximum, the largest of all.
fn figures(key: WakeupRow, repeats: &[Wakeups]) -> WakeupRow {
    let us = |ns: u64| ns as f64 / 1000.0;
    let middle = |of: fn(&Wakeups) -> u64| {
        median(&repeats.iter().map(|w| us(of(w))).collect::<Vec<_>>()).map_or(0.0, round)
    };
    WakeupRow {
        count: repeats.iter().map(|w| w.count).sum(),
        p50_us: middle(|w| w.p50_ns),
        p99_us: middle(|w| w.p99_ns),
        max_us: repeats.iter().map(|w| round(us(w.max_ns))).fold(0.0, f64::max),
        ..key
    }
}

/// The p99 of the arm with which this one is compared.
fn baseline_p99(row: &WakeupRow, rows: &[WakeupRow]) -> Option<f64> {
    let same = |other: &&WakeupRow| {
        (&other.profile, other.vms, other.cgroup, &other.lock, &other.arm)
            == (&row.profile, row.vms, row.cgroup, &row.lock, &row.baseline)
    };
    rows.iter().find(same).map(|other| other.p99_us).filter(|&p99_us| p99_us > 0.0)
}
