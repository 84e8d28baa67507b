// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs become rows: medians over repeats, normalised to the baseline, with ideal and headroom.

use crate::input::{Input, Stream};
use crate::slowdown;
use crate::stalls::stalls;
use crate::stat::{jain, log2_percentile, median, spread, Verdict};
use crate::summary::{
    CostNs, Headroom, Mean, Place, Provenance, Row, Summary, TimeShares, WaitCycles, WindowCycles,
    Yields,
};
use std::collections::{BTreeMap, BTreeSet};
use unspin_scenario::plan::{CgroupLayout, Run, Window, YieldTo, SCHEMA};
use unspin_scenario::result::{Attribution, Begin, EpochSample, ModuleStats, RunResult, VmResult};
use unspin_scenario::IDEAL_ARM;

/// Rounds a VM must have done to count as adapted.
pub const ROUNDS_MIN: u64 = 10;
/// Headroom (of ideal) from which a profile counts in the share closed.
const HEADROOM_MIN: f64 = 0.05;

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

/// What a row is over: a group of VMs that are alike, or one of them.
#[derive(Clone, Copy)]
struct Over<'a> {
    group: &'a str,
    vm: Option<u32>,
}

impl Over<'_> {
    /// Whether VM number `vm` of the run counts.
    fn has(&self, r: &RunResult, vm: u32) -> bool {
        let in_group = r.run.each.get(vm as usize).is_none_or(|each| each.group == self.group);
        in_group && self.vm.is_none_or(|only| only == vm)
    }
}

/// The VMs a row is over.
fn vms<'a>(r: &'a RunResult, over: Over<'a>) -> impl Iterator<Item = &'a VmResult> {
    (0..).zip(&r.vm).filter(move |(vm, _)| over.has(r, *vm)).map(|(_, v)| v)
}

pub(crate) fn per_second(r: &RunResult, units: u64) -> f64 {
    units as f64 * 1e9 / r.window_ns as f64
}

/// Work units a second.
fn throughput(r: &RunResult, over: Over) -> f64 {
    per_second(r, vms(r, over).flat_map(|v| &v.units).sum())
}

/// Sum of a counter over the row's VMs; `None` unless the module counted for all of them.
fn counted(r: &RunResult, over: Over, f: impl Fn(&ModuleStats) -> u64) -> Option<u64> {
    let all = vms(r, over).map(|v| v.module.as_ref());
    let all: Vec<&ModuleStats> = all.collect::<Option<_>>()?;
    (!all.is_empty()).then(|| all.into_iter().map(f).sum())
}

fn median_count(runs: &[&RunResult], over: Over, f: impl Fn(&ModuleStats) -> u64) -> Option<u64> {
    let all: Vec<f64> =
        runs.iter().filter_map(|r| counted(r, over, &f)).map(|n| n as f64).collect();
    median(&all).map(|m| m.round() as u64)
}

/// Σ(spin + switch) ÷ Σ CPU cycles; unknown without PLE, whose exits are what is counted.
fn inefficiency(r: &RunResult, over: Over) -> Option<f64> {
    if r.run.arm.window == Window::Off {
        return None;
    }
    let wasted = counted(r, over, |m| m.wasteful_spin_cycles + m.wasteful_switch_cycles)?;
    let cpu = counted(r, over, |m| m.cpu_cycles)?;
    (cpu > 0).then(|| wasted as f64 / cpu as f64)
}

/// Shares of all repeats together; `None` where the machine cannot attribute time.
fn time_shares(of: &[&RunResult], over: Over) -> Option<TimeShares> {
    let all: Option<Vec<_>> = of.iter().flat_map(|r| vms(r, over)).map(|v| v.attribution).collect();
    let all = all.filter(|a| !a.is_empty())?;
    let sum = |f: fn(&Attribution) -> u64| all.iter().map(f).sum::<u64>();
    let classes = [
        sum(|a| a.useful_ns),
        sum(|a| a.spin_holder_running_ns),
        sum(|a| a.spin_holder_preempted_ns),
        sum(|a| a.switch_ns),
        sum(|a| a.exit_ns),
        sum(|a| a.halted_ns),
        sum(|a| a.waiting_ns),
    ];
    let whole = classes.iter().sum::<u64>();
    if whole == 0 {
        return None;
    }
    let [useful, spin_holder_running, spin_holder_preempted, switch, exit, halted, waiting] =
        classes.map(|ns| round(ns as f64 / whole as f64));
    Some(TimeShares {
        useful,
        spin_holder_running,
        spin_holder_preempted,
        switch,
        exit,
        halted,
        waiting,
    })
}

/// Time by factor, all repeats together; `None` where the machine cannot tell, or a record's parts
/// are more than their whole.
fn cost(of: &[&RunResult], over: Over) -> Option<CostNs> {
    let mut sum = CostNs::default();
    let mut any = false;
    for a in of.iter().flat_map(|r| vms(r, over)).map(|v| v.attribution) {
        let a = a?;
        let f = a.factors?;
        let spun = a.spin_holder_running_ns + a.spin_holder_preempted_ns;
        let host = f.idle_switch_ns + f.spin_switch_ns + f.ipi_ns + f.migration_ns;
        sum.work_ns += a.useful_ns.checked_sub(f.far_data_ns)?;
        sum.idle_switch_ns += f.idle_switch_ns;
        sum.spin_switch_ns += f.spin_switch_ns;
        sum.ipi_ns += f.ipi_ns;
        sum.user_spin_ns += f.user_spin_ns;
        sum.cache_ns += f.far_data_ns + f.migration_ns;
        sum.kernel_spin_ns += spun.checked_sub(f.user_spin_ns)?;
        sum.other_host_ns += (a.switch_ns + a.exit_ns).checked_sub(host)?;
        sum.halted_ns += a.halted_ns;
        sum.waiting_ns += a.waiting_ns;
        any = true;
    }
    any.then_some(sum)
}

/// Cycles that handling a PLE exit took, on average.
fn exit_handling(r: &RunResult, over: Over) -> Option<f64> {
    let cycles = counted(r, over, |m| m.wasteful_switch_cycles)?;
    let exits = counted(r, over, |m| m.ple_exits)?;
    (exits > 0).then(|| cycles as f64 / exits as f64)
}

fn fairness_vcpus(r: &RunResult, over: Over) -> Option<f64> {
    let each: Vec<f64> = vms(r, over)
        .filter_map(|v| jain(&v.units.iter().map(|u| *u as f64).collect::<Vec<_>>()))
        .collect();
    (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
}

fn fairness_vms(r: &RunResult, over: Over) -> Option<f64> {
    let weight = |i: usize| r.run.weights.get(i).map_or(1.0, |w| f64::from(*w));
    let share: Vec<f64> =
        r.vm.iter()
            .enumerate()
            .filter(|(i, _)| over.has(r, *i as u32))
            .map(|(i, v)| v.units.iter().sum::<u64>() as f64 / weight(i))
            .collect();
    jain(&share)
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

fn row(of: &[&RunResult], base: &[&RunResult], over: Over) -> Row {
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
    let picked =
        |m: &ModuleStats| m.yields_resource_waiter + m.yields_lock_waiter + m.yields_yielded;
    let picks_known = !picks_are_kvms_own(of, over);
    let ran = median_count(of, over, |m| m.picks_ran_next).filter(|_| picks_known);
    let picks = median_count(of, over, picked);
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

/// Six decimals: more than any measurement has, few enough to read.
pub(crate) fn round(x: f64) -> f64 {
    (x * 1e6).round() / 1e6
}

fn cpu_ns(r: &RunResult, over: Over) -> u64 {
    vms(r, over).flat_map(|v| &v.cpu_ns).sum()
}

fn rounds(of: &[&RunResult], over: Over) -> Option<u64> {
    of.iter()
        .flat_map(|r| vms(r, over))
        .map(|v| v.module.as_ref().map(|m| m.rounds_total))
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .min()
}

fn yields(of: &[&RunResult], over: Over) -> Option<Yields> {
    Some(Yields {
        resource_waiter: median_count(of, over, |m| m.yields_resource_waiter)?,
        lock_waiter: median_count(of, over, |m| m.yields_lock_waiter)?,
        yielded: median_count(of, over, |m| m.yields_yielded)?,
        none: median_count(of, over, |m| m.yields_none)?,
        gave_way: median_count(of, over, |m| m.yields_gave_way)?,
        failed: median_count(of, over, |m| m.yields_failed)?,
    })
}

/// Where KVM picks by itself, the module sees the exits but not what came of them.
fn picks_are_kvms_own(of: &[&RunResult], over: Over) -> bool {
    let seen = |m: &ModuleStats| {
        m.yields_resource_waiter
            + m.yields_lock_waiter
            + m.yields_yielded
            + m.yields_none
            + m.yields_gave_way
            + m.yields_failed
    };
    of.iter().all(|r| {
        r.run.arm.yield_to == YieldTo::Stock
            && counted(r, over, seen) == Some(0)
            && counted(r, over, |m| m.ple_exits).is_some_and(|n| n > 0)
    })
}

fn merged_waits(of: &[&RunResult], over: Over) -> Vec<u64> {
    let mut merged = Vec::new();
    for h in of.iter().flat_map(|r| vms(r, over)).map(|v| &v.wait_hist) {
        if merged.len() < h.len() {
            merged.resize(h.len(), 0u64);
        }
        for (m, n) in merged.iter_mut().zip(h) {
            *m = m.saturating_add(*n);
        }
    }
    merged
}

fn windows(of: &[&RunResult], over: Over) -> WindowCycles {
    let seen: Vec<u64> = of
        .iter()
        .flat_map(|r| r.epochs.iter().filter(|e| over.has(r, e.vm)))
        .map(|e| e.window_cycles)
        .collect();
    let last: Vec<f64> = of
        .iter()
        .filter(|r| r.run.arm.window != Window::Off)
        .flat_map(|r| vms(r, over))
        .filter_map(|v| v.module.as_ref())
        .map(|m| m.window_cycles)
        .filter(|w| *w > 0)
        .map(|w| w as f64)
        .collect();
    WindowCycles {
        min: seen.iter().min().copied(),
        median: median(&seen.iter().map(|w| *w as f64).collect::<Vec<_>>()).map(|m| m as u64),
        max: seen.iter().max().copied(),
        last: median(&last).map(|m| m as u64),
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

/// Whether `r` shows what a VM of the group does alone: the same workload in the same kind of VM.
fn is_alone_of(r: &RunResult, with_others: &RunResult, whole: Over) -> bool {
    let run = &with_others.run;
    match run.each.iter().find(|each| each.group == whole.group) {
        None => r.run.profile == run.profile,
        Some(each) => {
            (&r.run.profile, r.run.vcpus, r.run.lock, r.run.tau_ns, r.run.cpl)
                == (&each.profile, each.vcpus, each.lock, each.tau_ns, each.cpl)
        }
    }
}

/// What one VM does alone.
struct Alone {
    units_per_s: f64,
    cpu_ns_per_unit: f64,
}

fn alone_of(r: &RunResult) -> Option<Alone> {
    let units: u64 = r.vm.first()?.units.iter().sum();
    let cpu: u64 = r.vm.first()?.cpu_ns.iter().sum();
    (units > 0 && cpu > 0).then(|| Alone {
        units_per_s: per_second(r, units),
        cpu_ns_per_unit: cpu as f64 / units as f64,
    })
}

/// The most a VM could do with the CPU time it got under the baseline.
fn ideal_of_vm(v: &VmResult, window_ns: u64, alone: &Alone) -> f64 {
    let cpu: u64 = v.cpu_ns.iter().sum();
    let by_cpu = cpu as f64 / alone.cpu_ns_per_unit * 1e9 / window_ns as f64;
    alone.units_per_s.min(by_cpu)
}

fn ideal_row(base: &[&RunResult], alone: &[&RunResult], over: Over) -> Option<Row> {
    let base_thr = median(&base.iter().map(|r| throughput(r, over)).collect::<Vec<_>>())?;
    let mut ideals = Vec::new();
    let mut ratios = BTreeMap::new();
    for b in base {
        let same_seed = alone.iter().find(|a| a.run.seed == b.run.seed).or(alone.first())?;
        let a = alone_of(same_seed)?;
        let ideal: f64 = vms(b, over).map(|v| ideal_of_vm(v, b.window_ns, &a)).sum();
        ideals.push(ideal);
        let thr = throughput(b, over);
        if thr > 0.0 {
            ratios.insert(b.run.repeat, ideal / thr);
        }
    }
    let s = spread(&ratios.values().copied().collect::<Vec<_>>());
    let ideal = median(&ideals)?;
    let first = row(base, base, over);
    Some(Row {
        arm: IDEAL_ARM.to_string(),
        repeats: ideals.len(),
        performance: (base_thr > 0.0).then(|| round(ideal / base_thr)),
        performance_low: s.map(|s| round(s.low)),
        performance_high: s.map(|s| round(s.high)),
        performance_min: s.map(|s| round(s.min)),
        performance_max: s.map(|s| round(s.max)),
        verdict: None,
        throughput_per_s: Some(round(ideal)),
        ratios,
        inefficiency: None,
        inefficiency_min: None,
        inefficiency_max: None,
        inefficiency_change: None,
        time: None,
        cost: None,
        ple_exits: None,
        exit_handling_cycles: None,
        yields: None,
        picks_ran_next: None,
        picks_ran_next_share: None,
        window_cycles: WindowCycles::default(),
        epoch_ple_exits: None,
        epochs: None,
        rounds: None,
        adapted: None,
        wait_cycles: WaitCycles::default(),
        fairness: None,
        fairness_vms: None,
        cpus_used: first.cpus_used,
        hypercalls_kick: None,
        hypercalls_sched_yield: None,
        fail_open_events: None,
        wait_hist: Vec::new(),
        ..first
    })
}

/// The places of the rows over all VMs, and the rows of each.
fn by_place(rows: &[Row]) -> Vec<(Place, Vec<&Row>)> {
    let mut out: Vec<(Place, Vec<&Row>)> = Vec::new();
    for r in rows.iter().filter(|r| r.vm_index.is_none()) {
        let key = r.place();
        match out.iter_mut().find(|(k, _)| *k == key) {
            Some((_, v)) => v.push(r),
            None => out.push((key, vec![r])),
        }
    }
    out
}

fn arms_of<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut arms: Vec<&str> = Vec::new();
    for r in rows {
        if !arms.contains(&r.arm.as_str()) {
            arms.push(&r.arm);
        }
    }
    arms
}

fn headroom(rows: &[Row]) -> Vec<Headroom> {
    let mut out = Vec::new();
    for (place, rows) in by_place(rows) {
        let ideal: Vec<(&str, f64)> = rows
            .iter()
            .filter(|r| r.arm == IDEAL_ARM)
            .filter_map(|r| Some((r.profile.as_str(), r.performance?)))
            .collect();
        if ideal.is_empty() {
            continue;
        }
        for arm in arms_of(&rows) {
            let own: Vec<&&Row> = rows
                .iter()
                .filter(|r| r.arm == arm && r.baseline != arm && arm != IDEAL_ARM)
                .collect();
            if !own.is_empty() {
                out.push(closed(&place, arm, &own, &ideal));
            }
        }
    }
    out
}

fn closed(place: &Place, arm: &str, own: &[&&Row], ideal: &[(&str, f64)]) -> Headroom {
    let (mut won, mut room, mut of) = (0.0, 0.0, 0.0);
    let (mut won_all, mut room_all) = (0.0, 0.0);
    let (mut profiles, mut not_adapted) = (Vec::new(), Vec::new());
    for (profile, limit) in ideal.iter().filter(|(_, i)| 1.0 - 1.0 / i >= HEADROOM_MIN) {
        let Some(r) = own.iter().find(|r| r.profile == *profile) else {
            continue;
        };
        let Some(performance) = r.performance else {
            continue;
        };
        won_all += performance - 1.0;
        room_all += limit - 1.0;
        if r.adapted == Some(false) {
            not_adapted.push(profile.to_string());
            continue;
        }
        won += performance - 1.0;
        room += limit - 1.0;
        of += limit;
        profiles.push(profile.to_string());
    }
    let all: f64 = ideal.iter().map(|(_, i)| i).sum();
    let loss = if room > 0.0 { room / of } else { (all - ideal.len() as f64) / all };
    Headroom {
        vms: place.vms,
        cgroup: place.cgroup,
        lock: place.lock.clone(),
        arm: arm.to_string(),
        closed: (room > 0.0).then(|| round(won / room)),
        closed_all: (room_all > 0.0).then(|| round(won_all / room_all)),
        stock_loss: Some(round(loss)),
        profiles,
        not_adapted,
    }
}

fn means(rows: &[Row]) -> Vec<Mean> {
    let mut out = Vec::new();
    for (place, rows) in by_place(rows) {
        for arm in arms_of(&rows) {
            let own: Vec<&Row> = rows
                .iter()
                .copied()
                .filter(|r| r.arm == arm && r.spin_intensive && r.performance.is_some())
                .collect();
            if own.is_empty() {
                continue;
            }
            let (left_out, count): (Vec<&Row>, Vec<&Row>) =
                own.into_iter().partition(|r| r.adapted == Some(false));
            out.push(mean(&place, arm, &count, &left_out));
        }
    }
    out
}

fn mean(place: &Place, arm: &str, count: &[&Row], left_out: &[&Row]) -> Mean {
    let average = |x: Vec<f64>| (!x.is_empty()).then(|| x.iter().sum::<f64>() / x.len() as f64);
    let repeats: BTreeSet<u32> = count.iter().flat_map(|r| r.ratios.keys().copied()).collect();
    // Only repeats that every profile has: others would compare different sets.
    let each: Vec<f64> = repeats
        .iter()
        .filter_map(|n| count.iter().map(|r| r.ratios.get(n).copied()).collect::<Option<Vec<_>>>())
        .filter_map(average)
        .collect();
    let s = spread(&each);
    let is_baseline = count.first().is_some_and(|r| r.baseline == arm);
    let is_measured = arm != IDEAL_ARM && !is_baseline;
    let names = |rows: &[&Row]| rows.iter().map(|r| r.profile.clone()).collect();
    let all = || count.iter().chain(left_out);
    let waste: Option<Vec<f64>> = count.iter().map(|r| r.inefficiency).collect();
    let waste_all: Option<Vec<f64>> = all().map(|r| r.inefficiency).collect();
    Mean {
        vms: place.vms,
        cgroup: place.cgroup,
        lock: place.lock.clone(),
        arm: arm.to_string(),
        performance: average(count.iter().filter_map(|r| r.performance).collect()).map(round),
        performance_low: s.map(|s| round(s.low)),
        performance_high: s.map(|s| round(s.high)),
        verdict: s.filter(|_| is_measured).map(|s| Verdict::of(&s).as_str()),
        inefficiency: waste.and_then(average).map(round),
        performance_all: average(all().filter_map(|r| r.performance).collect()).map(round),
        inefficiency_all: waste_all.and_then(average).map(round),
        profiles: names(count),
        not_adapted: names(left_out),
    }
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
