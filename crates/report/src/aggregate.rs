// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs become rows: medians over repeats, normalised to the baseline, with ideal and headroom.

use crate::ideal::{ideal_row, is_alone_of};
use crate::input::{Input, Stream};
use crate::means::{headroom, means};
use crate::measures::{
    cost, cpu_ns, exit_handling, fairness_vcpus, fairness_vms, inefficiency, median_count,
    merged_waits, picks_are_kvms_own, rounds, throughput, time_shares, vms, windows, yields, Over,
};
use crate::slowdown;
use crate::stalls::stalls;
use crate::stat::{log2_percentile, median, round, spread, Verdict};
use crate::summary::{Provenance, Row, Summary, WaitCycles};
use std::collections::{BTreeMap, BTreeSet};
use unspin_scenario::plan::{CgroupLayout, Run, Window, SCHEMA};
use unspin_scenario::result::{Begin, EpochSample, ModuleStats, RunResult};

/// Rounds a VM must have done to count as adapted.
pub const ROUNDS_MIN: u64 = 10;

/// Everything to be said about one scenario on one kernel of one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub summary: Summary,
    pub traces: Vec<EpochTrace>,
}

/// The windows of one VM over time, from the first repeat that has them.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochTrace {
    pub profile: String,
    pub vms: u32,
    pub cgroup: CgroupLayout,
    /// The lock compared under, where locks are swept.
    pub lock: String,
    pub arm: String,
    pub vm: u32,
    pub samples: Vec<EpochSample>,
}

/// What is compared arm by arm.
type Point = (String, u32, CgroupLayout, String);

/// One document for each scenario, machine and kernel of the input, in the order they came; shares
/// of a plan (`unspin bench --shard`) are put together.
pub fn documents(input: &Input) -> Vec<Document> {
    let (streams, missing) = crate::shards::join(&input.streams);
    let notices = [&input.notices[..], &missing].concat();
    let mut groups: Vec<Vec<&Stream>> = Vec::new();
    for s in &streams {
        match groups.iter_mut().find(|g| same_document(g[0], s)) {
            Some(g) => g.push(s),
            None => groups.push(vec![s]),
        }
    }
    groups.iter().map(|g| document(g, &notices)).collect()
}

pub(crate) fn same_document(a: &Stream, b: &Stream) -> bool {
    let key = |s: &Stream| {
        let b = &s.begin;
        (b.scenario.clone(), b.scenario_hash.clone(), b.machine.clone(), b.kernel.clone())
    };
    key(a) == key(b) && a.begin.module == b.begin.module
}

fn document(streams: &[&Stream], notices: &[String]) -> Document {
    let mut notices = notices.to_vec();
    let runs = distinct_runs(streams, &mut notices);
    let begin = &streams[0].begin;
    let mut points: Vec<Point> = Vec::new();
    let mut arms: Vec<&str> = Vec::new();
    for r in runs.iter().filter(|r| !r.run.alone) {
        let p = point_of(r);
        if !points.contains(&p) {
            points.push(p);
        }
    }
    for r in runs.iter().filter(|r| !r.run.alone) {
        if !arms.contains(&r.run.arm.name.as_str()) {
            arms.push(&r.run.arm.name);
        }
    }
    let locks: Vec<String> = points.iter().map(|p| p.3.clone()).collect();
    let of_lock = |p: &Point| locks.iter().position(|l| *l == p.3);
    points.sort_by_key(|p| (of_lock(p), p.2 as u8, p.1));
    let mut rows = Vec::new();
    for p in &points {
        rows.extend(rows_of_point(p, &arms, &runs));
    }
    let (rows, slowdowns) = slowdown::split(rows, &slowdown::check_arms(&runs));
    let headroom = headroom(&rows);
    let means = means(&rows);
    let summary = Summary {
        schema: SCHEMA,
        machine: machine_of(&begin.machine),
        scenario: begin.scenario.clone(),
        title: begin.title.clone(),
        kernel: begin.kernel.clone(),
        provenance: provenance(streams, &runs),
        headroom,
        means,
        arms: rows,
        stalls: stalls(&runs),
        slowdowns,
        notices,
    };
    Document { summary, traces: traces(&runs) }
}

fn machine_of(name: &str) -> String {
    if name.is_empty() { "unknown" } else { name }.to_string()
}

fn point_of(r: &RunResult) -> Point {
    (r.run.profile.clone(), r.run.vms, r.run.cgroup, r.run.lock_group.clone())
}

/// Every run once, without those a VM ended early in.
pub(crate) fn distinct_runs<'a>(
    streams: &[&'a Stream],
    notices: &mut Vec<String>,
) -> Vec<&'a RunResult> {
    let mut runs: Vec<&RunResult> = Vec::new();
    let mut differing = 0;
    for r in streams.iter().flat_map(|s| &s.runs) {
        if let Some(e) = r.vm.iter().find_map(|v| v.error.as_ref()) {
            notices.push(format!("{} left out: a VM failed: {e}", name_of(r)));
            continue;
        }
        if r.vm.is_empty() || r.window_ns == 0 {
            notices.push(format!("{} left out: it has no measurement", name_of(r)));
            continue;
        }
        match runs.iter().find(|x| same_run(x, r)) {
            Some(x) if x == &r => {}
            Some(_) => differing += 1,
            None => runs.push(r),
        }
    }
    if differing > 0 {
        notices.push(format!(
            "{differing} runs stand in the results twice with different values; the first counts"
        ));
    }
    runs
}

fn same_run(a: &RunResult, b: &RunResult) -> bool {
    point_of(a) == point_of(b)
        && (a.run.repeat, a.run.seed, a.run.alone) == (b.run.repeat, b.run.seed, b.run.alone)
        && a.run.arm == b.run.arm
}

fn name_of(r: &RunResult) -> String {
    format!(
        "run {} ({}, {} VMs, {}, {}, repeat {})",
        r.run.id,
        r.run.profile,
        r.run.vms,
        r.run.lock.name(),
        r.run.arm.name,
        r.run.repeat
    )
}

fn provenance(streams: &[&Stream], runs: &[&RunResult]) -> Provenance {
    let b = &streams[0].begin;
    let set = |f: &dyn Fn(&RunResult) -> Option<u64>| -> Vec<u64> {
        runs.iter().filter_map(|r| f(r)).collect::<BTreeSet<_>>().into_iter().collect()
    };
    Provenance {
        machine: machine_of(&b.machine),
        kernel: b.kernel.clone(),
        scenario_hash: b.scenario_hash.clone(),
        module: b.module.clone(),
        window_control: b.window_control.clone(),
        cpu_model: b.cpu_model.clone(),
        pcpus: b.pcpus,
        tsc_khz: b.tsc_khz,
        commit: each(streams, |b| b.commit.as_deref()),
        version: each(streams, |b| b.version.as_deref()),
        image: each(streams, |b| b.image.as_deref()),
        boots: streams.len(),
        complete: streams.iter().all(|s| s.ended && s.failed.is_empty()),
        runs: runs.len(),
        seeds: set(&|r| Some(r.run.seed)),
        window_ms: set(&|r| Some(r.run.window_ms)),
        epoch_ple_exits: small(set(&|r| epoch_of(r).map(u64::from))),
        epoch_min_us: small(set(&|r| epoch_min_of(r).map(u64::from))),
        settings: b.settings.clone(),
    }
}

fn small(values: Vec<u64>) -> Vec<u32> {
    values.into_iter().filter_map(|n| u32::try_from(n).ok()).collect()
}

/// Every distinct value the streams have, in their order.
fn each<'a>(streams: &[&'a Stream], f: impl Fn(&'a Begin) -> Option<&'a str>) -> Option<String> {
    let mut all: Vec<&str> = Vec::new();
    for x in streams.iter().filter_map(|s| f(&s.begin)) {
        if !all.contains(&x) {
            all.push(x);
        }
    }
    (!all.is_empty()).then(|| all.join(", "))
}

fn epoch_min_of(r: &RunResult) -> Option<u32> {
    match &r.run.arm.window {
        Window::Aple(p) => Some(p.epoch_min_us),
        Window::Off => None,
        Window::Stock | Window::Fixed { .. } => r.run.epoch_min_us,
    }
}

fn epoch_of(r: &RunResult) -> Option<u32> {
    match &r.run.arm.window {
        Window::Aple(p) => Some(p.epoch_ple_exits),
        Window::Off => None,
        Window::Stock | Window::Fixed { .. } => r.run.epoch_ple_exits,
    }
}

fn rows_of_point(p: &Point, arms: &[&str], runs: &[&RunResult]) -> Vec<Row> {
    let of_arm = |name: &str| -> Vec<&RunResult> {
        runs.iter()
            .copied()
            .filter(|r| !r.run.alone && point_of(r) == *p && r.run.arm.name == name)
            .collect()
    };
    let alone: Vec<&RunResult> =
        runs.iter().copied().filter(|r| r.run.alone && r.run.lock_group == p.3).collect();
    let present: Vec<&str> = arms.iter().copied().filter(|a| !of_arm(a).is_empty()).collect();
    let Some(baseline) = present.first().map(|a| of_arm(a)[0].run.baseline.clone()) else {
        return Vec::new();
    };
    let base = of_arm(&baseline);
    let mut rows = Vec::new();
    let Some(first) = base.first() else { return Vec::new() };
    for group in first.run.groups() {
        let whole = Over { group, vm: None };
        let members = (0..p.1).filter(|vm| whole.has(first, *vm));
        let parts: Vec<Over> = std::iter::once(whole)
            .chain(members.map(|vm| Over { vm: Some(vm), ..whole }))
            .collect();
        let mut own = Vec::new();
        for arm in &present {
            let of = of_arm(arm);
            own.extend(parts.iter().map(|over| row(&of, &base, *over)));
        }
        own.extend(best_and_worst_fixed(&own, runs));
        let alone: Vec<&RunResult> =
            alone.iter().copied().filter(|r| is_alone_of(r, first, whole)).collect();
        own.extend(parts.iter().filter_map(|over| ideal_row(&base, &alone, *over)));
        rows.append(&mut own);
    }
    rows
}

/// Ratio of each repeat to the baseline's repeat of the same seed.
fn ratios(of: &[&RunResult], base: &[&RunResult], over: Over) -> BTreeMap<u32, f64> {
    let mut out = BTreeMap::new();
    for r in of {
        let b = base.iter().find(|b| (b.run.repeat, b.run.seed) == (r.run.repeat, r.run.seed));
        if let Some(b) = b.map(|b| throughput(b, over)).filter(|b| *b > 0.0) {
            out.insert(r.run.repeat, throughput(r, over) / b);
        }
    }
    out
}

pub(crate) fn row(of: &[&RunResult], base: &[&RunResult], over: Over) -> Row {
    let run = &of[0].run;
    let is_baseline = run.arm.name == run.baseline;
    let collect = |f: &dyn Fn(&RunResult) -> Option<f64>| -> Vec<f64> {
        of.iter().filter_map(|r| f(r)).collect()
    };
    let thr = median(&collect(&|r| Some(throughput(r, over))));
    let base_thr = median(&base.iter().map(|r| throughput(r, over)).collect::<Vec<_>>());
    let ratios = ratios(of, base, over);
    let ratio_spread = spread(&ratios.values().copied().collect::<Vec<_>>());
    let waste = spread(&collect(&|r| inefficiency(r, over)));
    let base_waste = median(&base.iter().filter_map(|r| inefficiency(r, over)).collect::<Vec<_>>());
    let change = waste.zip(base_waste.filter(|b| *b > 0.0)).map(|(w, b)| w.median / b - 1.0);
    let picks_known = !picks_are_kvms_own(of, over);
    let ran = median_count(of, over, |m| m.picks_ran_next).filter(|_| picks_known);
    let picks = median_count(of, over, ModuleStats::yields);
    let rounds = rounds(of, over);
    let wait_hist = merged_waits(of, over);
    Row {
        profile: over.group.to_string(),
        vms: run.vms,
        vm_index: over.vm,
        cgroup: run.cgroup,
        lock: run.lock_group.clone(),
        arm: run.arm.name.clone(),
        baseline: run.baseline.clone(),
        spin_intensive: spin_intensive(run, over.group),
        same_as: None,
        repeats: of.len(),
        performance: thr.zip(base_thr.filter(|b| *b > 0.0)).map(|(t, b)| round(t / b)),
        performance_low: ratio_spread.map(|s| round(s.low)),
        performance_high: ratio_spread.map(|s| round(s.high)),
        performance_min: ratio_spread.map(|s| round(s.min)),
        performance_max: ratio_spread.map(|s| round(s.max)),
        verdict: ratio_spread.filter(|_| !is_baseline).map(|s| Verdict::of(&s).as_str()),
        throughput_per_s: thr.map(round),
        inefficiency: waste.map(|s| round(s.median)),
        inefficiency_min: waste.map(|s| round(s.min)),
        inefficiency_max: waste.map(|s| round(s.max)),
        inefficiency_change: change.map(round),
        time: time_shares(of, over),
        cost: cost(of, over),
        ple_exits: median_count(of, over, |m| m.ple_exits),
        exit_handling_cycles: median(&collect(&|r| exit_handling(r, over)))
            .map(|c| c.round() as u64),
        yields: yields(of, over).filter(|_| picks_known),
        picks_ran_next: ran,
        picks_ran_next_share: ran
            .zip(picks.filter(|p| *p > 0))
            .map(|(r, p)| round(r as f64 / p as f64)),
        window_cycles: windows(of, over),
        epoch_ple_exits: epoch_of(of[0]),
        epochs: median_count(of, over, |m| m.epochs),
        rounds,
        adapted: match run.arm.window {
            Window::Aple(_) => rounds.map(|n| n >= ROUNDS_MIN),
            _ => None,
        },
        wait_cycles: WaitCycles {
            p50: log2_percentile(&wait_hist, 0.5).map(|c| c as u64),
            p99: log2_percentile(&wait_hist, 0.99).map(|c| c as u64),
            max: of
                .iter()
                .flat_map(|r| vms(r, over))
                .map(|v| v.max_wait_cycles)
                .max()
                .filter(|_| wait_hist.iter().any(|n| *n > 0)),
        },
        fairness: median(&collect(&|r| fairness_vcpus(r, over))).map(round),
        fairness_vms: match over.vm {
            None => median(&collect(&|r| fairness_vms(r, over))).map(round),
            Some(_) => None,
        },
        cpus_used: median(&collect(&|r| Some(cpu_ns(r, over) as f64 / r.window_ns as f64)))
            .map(round),
        hypercalls_kick: median_count(of, over, |m| m.hypercalls_kick),
        hypercalls_sched_yield: median_count(of, over, |m| m.hypercalls_sched_yield),
        fail_open_events: median_count(of, over, |m| m.fail_open_events),
        wait_hist,
        ratios,
    }
}

/// Of the arms that hold one window, the one that did best and the one that did worst.
fn best_and_worst_fixed(rows: &[Row], runs: &[&RunResult]) -> Vec<Row> {
    let is_fixed = |arm: &str| {
        runs.iter()
            .find(|r| r.run.arm.name == arm)
            .is_some_and(|r| matches!(r.run.arm.window, Window::Fixed { .. }))
    };
    let mut fixed: Vec<&Row> = rows
        .iter()
        .filter(|r| r.vm_index.is_none() && r.performance.is_some() && is_fixed(&r.arm))
        .collect();
    fixed.sort_by(|a, b| a.performance.unwrap_or(0.0).total_cmp(&b.performance.unwrap_or(0.0)));
    if fixed.len() < 2 {
        return Vec::new();
    }
    let named = |name: &str, r: &Row| Row {
        arm: name.to_string(),
        same_as: Some(r.arm.clone()),
        ..r.clone()
    };
    vec![named("best-fixed", fixed[fixed.len() - 1]), named("worst-fixed", fixed[0])]
}

/// Whether the group's workload is one of those that spin.
fn spin_intensive(run: &Run, group: &str) -> bool {
    let of_group = run.each.iter().find(|each| each.group == group);
    of_group.map_or(run.spin_intensive, |each| each.spin_intensive)
}

fn traces(runs: &[&RunResult]) -> Vec<EpochTrace> {
    let mut out: Vec<EpochTrace> = Vec::new();
    for r in runs.iter().filter(|r| !r.epochs.is_empty()) {
        for vm in 0..r.run.vms {
            let known = out.iter().any(|t| {
                (&t.profile, t.vms, t.cgroup, &t.lock, &t.arm, t.vm)
                    == (
                        &r.run.profile,
                        r.run.vms,
                        r.run.cgroup,
                        &r.run.lock_group,
                        &r.run.arm.name,
                        vm,
                    )
            });
            let samples: Vec<EpochSample> =
                r.epochs.iter().filter(|e| e.vm == vm).cloned().collect();
            if !known && !samples.is_empty() {
                out.push(EpochTrace {
                    profile: r.run.profile.clone(),
                    vms: r.run.vms,
                    cgroup: r.run.cgroup,
                    lock: r.run.lock_group.clone(),
                    arm: r.run.arm.name.clone(),
                    vm,
                    samples,
                });
            }
        }
    }
    out
}
