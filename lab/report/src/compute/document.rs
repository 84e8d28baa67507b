// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes documents from runs: rows by point and arm, with ideal, means and headroom.

use crate::compute::diagnosis::diagnosis;
use crate::compute::ideal::{ideal_row, is_alone_of};
use crate::compute::means::{headroom, means};
use crate::compute::measures::Over;
use crate::compute::provenance::{machine_of, provenance};
use crate::compute::response::response;
use crate::compute::row::row;
use crate::compute::share::{share, standing};
use crate::compute::slowdown;
use crate::compute::stalls::stalls;
use crate::compute::wakeups::wakeups;
use crate::compute::world_tables::tables;
use crate::compute::worlds::Worlds;
use crate::read::dedupe::{by_document, distinct_runs, point_of};
use crate::read::input::{Input, Stream};
use crate::read::shards;
use crate::summary::{Document, EpochTrace, Key, Point, Row, Summary};
use unspin_scenario::plan::{Window, SCHEMA};
use unspin_scenario::result::{Begin, EpochSample, RunResult};
use unspin_text::names::distinct;

/// One document for each scenario, machine and kernel of the input, in order of appearance. Shares
/// of a plan (`unspin-lab bench --shard`) are joined.
pub fn documents(input: &Input) -> Vec<Document> {
    let (worlds, usual): (Vec<_>, Vec<_>) =
        input.streams.iter().cloned().partition(|s| s.begin.world.is_some());
    let (streams, missing) = shards::join(&usual);
    let notices = [&input.notices[..], &missing].concat();
    by_document(&streams).iter().map(|g| document(g, &worlds, &notices)).collect()
}

fn document(streams: &[&Stream], worlds: &[Stream], notices: &[String]) -> Document {
    let mut notices = notices.to_vec();
    let worlds = Worlds::of(&streams[0].begin, worlds, &mut notices);
    let runs = distinct_runs(streams, &mut notices);
    let begin = &streams[0].begin;
    let compared = runs.iter().filter(|r| !r.run.alone);
    let arms = distinct(compared.map(|r| r.run.arm.name.as_str()));
    let of_point = |p: &Point| rows_of_point(p, &arms, &runs, begin, &worlds);
    let rows = points(&runs).iter().flat_map(of_point).collect();
    let (rows, slowdowns) = slowdown::split(rows, &slowdown::arms_of_attribution(&runs));
    let summary = Summary {
        schema: SCHEMA,
        machine: machine_of(begin),
        scenario: begin.scenario.clone(),
        title: begin.title.clone(),
        kernel: begin.kernel.clone(),
        provenance: provenance(streams, &runs),
        headroom: headroom(&rows),
        means: means(&rows),
        arms: rows,
        stalls: stalls(&runs),
        wakeups: wakeups(&runs),
        slowdowns,
        worlds: worlds.made(),
        orders: worlds.orders(&points(&runs), &runs),
        notices,
    };
    let tables = tables(&worlds, &points(&runs), &runs);
    Document { summary, traces: traces(&runs), tables }
}

/// The points at which arms are compared, by lock, cgroups and number of VMs.
fn points(runs: &[&RunResult]) -> Vec<Point> {
    let mut points = distinct(runs.iter().filter(|r| !r.run.alone).map(|r| point_of(r)));
    let locks: Vec<String> = points.iter().map(|p| p.place.lock.clone()).collect();
    let of_lock = |p: &Point| locks.iter().position(|l| *l == p.place.lock);
    points.sort_by_key(|p| (of_lock(p), p.place.cgroup as u8, p.place.vms));
    points
}

fn rows_of_point(
    p: &Point,
    arms: &[&str],
    runs: &[&RunResult],
    begin: &Begin,
    worlds: &Worlds,
) -> Vec<Row> {
    let of_arm = |name: &str| -> Vec<&RunResult> {
        runs.iter()
            .copied()
            .filter(|r| !r.run.alone && point_of(r) == *p && r.run.arm.name == name)
            .collect()
    };
    let alone: Vec<&RunResult> =
        runs.iter().copied().filter(|r| r.run.alone && r.run.lock_group == p.place.lock).collect();
    let present: Vec<&str> = arms.iter().copied().filter(|a| !of_arm(a).is_empty()).collect();
    let Some(baseline) = present.first().map(|a| of_arm(a)[0].run.baseline.clone()) else {
        return Vec::new();
    };
    let base = of_arm(&baseline);
    let mut rows = Vec::new();
    let Some(first) = base.first() else { return Vec::new() };
    for group in first.run.groups() {
        let whole = Over { group: Some(group), vm: None };
        let members = (0..p.place.vms).filter(|vm| whole.has(first, *vm));
        let parts: Vec<Over> = std::iter::once(whole)
            .chain(members.map(|vm| Over { vm: Some(vm), ..whole }))
            .collect();
        let mut own = Vec::new();
        for arm in &present {
            let of = of_arm(arm);
            let row = |over| Row {
                share: share(&of, begin, over),
                diagnosis: diagnosis(&of, begin, over),
                standing: standing(&of, runs, over),
                response: response(&of, begin, over),
                bands: worlds.bands(&of, &base, over),
                ..row(&of, &base, over)
            };
            own.extend(parts.iter().copied().map(row));
        }
        own.extend(best_and_worst_fixed(&own, runs));
        let alone: Vec<&RunResult> =
            alone.iter().copied().filter(|r| is_alone_of(r, first, whole)).collect();
        own.extend(parts.iter().filter_map(|over| ideal_row(&base, &alone, *over)));
        rows.append(&mut own);
    }
    rows
}

/// The best and the worst of the arms with a fixed window.
fn best_and_worst_fixed(rows: &[Row], runs: &[&RunResult]) -> Vec<Row> {
    let is_fixed = |arm: &str| {
        runs.iter()
            .find(|r| r.run.arm.name == arm)
            .is_some_and(|r| matches!(r.run.arm.window, Window::Fixed { .. }))
    };
    let mut fixed: Vec<(f64, &Row)> = rows
        .iter()
        .filter(|r| r.key.is_whole() && is_fixed(&r.key.arm))
        .filter_map(|r| Some((r.perf.performance?, r)))
        .collect();
    fixed.sort_by(|a, b| a.0.total_cmp(&b.0));
    if fixed.len() < 2 {
        return Vec::new();
    }
    let named = |name: &str, r: &Row| {
        let (arm, same_as) = (name.to_string(), Some(r.key.arm.clone()));
        Row { key: Key { arm, same_as, ..r.key.clone() }, ..r.clone() }
    };
    vec![named("best-fixed", fixed[fixed.len() - 1].1), named("worst-fixed", fixed[0].1)]
}

fn traces(runs: &[&RunResult]) -> Vec<EpochTrace> {
    let mut out: Vec<EpochTrace> = Vec::new();
    for r in runs.iter().filter(|r| !r.epochs.is_empty()) {
        for vm in 0..r.run.vm_count() {
            let samples: Vec<EpochSample> =
                r.epochs.iter().filter(|e| e.vm == vm).cloned().collect();
            let (at, arm) = (point_of(r), r.run.arm.name.clone());
            let is_same = |t: &EpochTrace| (&t.at, &t.arm, t.vm) == (&at, &arm, vm);
            if !samples.is_empty() && !out.iter().any(is_same) {
                out.push(EpochTrace { at, arm, vm, samples });
            }
        }
    }
    out
}
