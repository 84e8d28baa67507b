// SPDX-License-Identifier: MIT OR Apache-2.0
//! A row: medians over the repeats of one arm at one point, normalised to the baseline.

use crate::compute::measures::{
    any_epoch_ended, cost, cpus_used, exit_handling, fairness_vcpus, fairness_vms, inefficiency,
    is_aple_alone, median_count, merged_waits, picks_are_kvms_own, polled_ns, rounds, throughput,
    time_shares, vms, window_cycles, yields, Over,
};
use crate::stat::{log2_percentile, median, round, spread, Spread, Verdict};
use crate::summary::{GuestKind, Key, Performance, Row, Spinner, Turns, VcpuTime, WaitCycles};
use std::collections::BTreeMap;
use unspin_scenario::plan::{Run, Vm, Window};
use unspin_scenario::result::{ModuleStats, RunResult, SpinPlace, Spinners, VmResult, VmTurns};
use unspin_scenario::Named;
use unspin_text::printable;

/// Number of places of each kind in a row.
const SPINNERS_SHOWN: usize = 6;

/// The row of the runs `of`, at least one, all of one arm, against those of the baseline.
pub(crate) fn row(of: &[&RunResult], base: &[&RunResult], over: Over) -> Row {
    let count = |counter: fn(&ModuleStats) -> u64| median_count(of, over, counter);
    let of_median = |f: fn(&RunResult, Over) -> Option<f64>| {
        median(&of.iter().filter_map(|r| f(r, over)).collect::<Vec<_>>())
    };
    let wait_hist = merged_waits(of, over);
    let mut row = Row {
        key: key(&of[0].run, over),
        guest: guest(of, over),
        perf: Performance { work_units: work_units(of, over), ..performance(of, base, over) },
        time: time_shares(of, over),
        cost: cost(of, over),
        ple_exits: count(|m| m.ple_exits),
        exit_handling_cycles: of_median(exit_handling).map(|c| c.round() as u64),
        window_cycles: window_cycles(of, over),
        epoch_ple_exits: epoch_ple_exits(of[0]),
        epochs: count(|m| m.epochs),
        rounds: rounds(of, over),
        adapted: any_epoch_ended(of, over),
        is_aple_alone: is_aple_alone(of[0]),
        wait_cycles: wait_cycles(of, over, &wait_hist),
        wait_hist,
        fairness: of_median(fairness_vcpus).map(round),
        fairness_vms: of_median(fairness_vms).filter(|_| over.vm.is_none()).map(round),
        cpus_used: cpus_used(of, over).map(round),
        hog_cpu_share: hog_cpu_share(of, over),
        host_idle_share: host_idle_share(of),
        turns: turns(of, over),
        hypercalls_kick: count(|m| m.hypercalls_kick),
        hypercalls_sched_yield: count(|m| m.hypercalls_sched_yield),
        fail_open_events: count(|m| m.fail_open_events),
        ..Row::default()
    };
    add_waste(&mut row, of, base, over);
    add_picks(&mut row, of, over);
    add_linux(&mut row, of, over);
    row
}

/// Only in rows over all VMs of a kind.
fn hog_cpu_share(of: &[&RunResult], over: Over) -> Option<f64> {
    let of_run = |r: &&RunResult| {
        let pcpus_ns = r.hogs_cpu_ns.len() as f64 * r.window_ns as f64;
        (pcpus_ns > 0.0).then(|| r.hogs_cpu_ns.iter().sum::<u64>() as f64 / pcpus_ns)
    };
    median(&of.iter().filter(|_| over.vm.is_none()).filter_map(of_run).collect::<Vec<_>>())
        .map(round)
}

/// The same in all rows of the runs.
fn host_idle_share(of: &[&RunResult]) -> Option<f64> {
    median(&of.iter().filter_map(|r| r.host_idle_share).collect::<Vec<_>>()).map(round)
}

/// Machines that know the turns of a VM which the module leaves alone say so; for others the module
/// counts.
fn turns(of: &[&RunResult], over: Over) -> Turns {
    let count = |of_turns: fn(&VmTurns) -> u64, counted: fn(&ModuleStats) -> u64| {
        let of_vm = |v: &VmResult| {
            v.turns.as_ref().map(of_turns).or_else(|| v.module.as_ref().map(counted))
        };
        let of_run = |r: &&RunResult| vms(r, over).map(of_vm).sum::<Option<u64>>();
        let all: Option<Vec<f64>> = of.iter().map(|r| of_run(r).map(|n| n as f64)).collect();
        median(&all?).map(|n| n.round() as u64)
    };
    let mut reasons = of.iter().flat_map(|r| vms(r, over)).filter_map(|v| v.turns.as_ref());
    Turns {
        parks: count(|t| t.parks, |m| m.parks),
        parks_late: count(|t| t.parks_late, |m| m.parks_late),
        refused: reasons.find_map(|turns| turns.refused.as_deref()).map(printable),
    }
}

pub(crate) fn key(run: &Run, over: Over) -> Key {
    let profile = over.group.unwrap_or(&run.profile);
    Key {
        profile: profile.to_string(),
        vms: run.vm_count(),
        vm_index: over.vm,
        cgroup: run.cgroup,
        lock: run.lock_group.clone(),
        arm: run.arm.name.clone(),
        baseline: run.baseline.clone(),
        // Cases are compared with nothing.
        spin_intensive: run.inject.is_none() && spin_intensive(run, profile),
        same_as: None,
    }
}

/// Whether the group's workload spins.
fn spin_intensive(run: &Run, group: &str) -> bool {
    let of_group = run.vms.iter().find(|vm| vm.group == group);
    of_group.unwrap_or(run.first()).spin_intensive
}

fn performance(of: &[&RunResult], base: &[&RunResult], over: Over) -> Performance {
    let run = &of[0].run;
    let is_baseline = run.arm.name == run.baseline;
    let median_throughput =
        |of: &[&RunResult]| median(&of.iter().map(|r| throughput(r, over)).collect::<Vec<_>>());
    let (thr, base_thr) = (median_throughput(of), median_throughput(base));
    let (s, spread) = with_spread(ratios(of, base, over));
    Performance {
        repeats: of.len(),
        performance: thr.zip(base_thr.filter(|b| *b > 0.0)).map(|(t, b)| round(t / b)),
        verdict: s.filter(|_| !is_baseline).map(|s| Verdict::of(&s).as_str()),
        throughput_per_s: thr.map(round),
        ..spread
    }
}

/// The spread of these ratios, and the fields that follow from it.
pub(crate) fn with_spread(ratios: BTreeMap<u32, f64>) -> (Option<Spread>, Performance) {
    let s = spread(&ratios.values().copied().collect::<Vec<_>>());
    let performance = Performance {
        performance_low: s.map(|s| round(s.low)),
        performance_high: s.map(|s| round(s.high)),
        performance_min: s.map(|s| round(s.min)),
        performance_max: s.map(|s| round(s.max)),
        ratios,
        ..Performance::default()
    };
    (s, performance)
}

/// Ratio of each repeat to the baseline's repeat with the same seed.
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

fn add_waste(row: &mut Row, of: &[&RunResult], base: &[&RunResult], over: Over) {
    let all = |of: &[&RunResult]| -> Vec<f64> {
        of.iter().filter_map(|r| inefficiency(r, over)).collect()
    };
    let Some(s) = spread(&all(of)) else { return };
    let base = median(&all(base)).filter(|b| *b > 0.0);
    row.inefficiency = Some(round(s.median));
    row.inefficiency_min = Some(round(s.min));
    row.inefficiency_max = Some(round(s.max));
    row.inefficiency_change = base.map(|b| round(s.median / b - 1.0));
}

fn add_picks(row: &mut Row, of: &[&RunResult], over: Over) {
    if picks_are_kvms_own(of, over) {
        return;
    }
    let picked = median_count(of, over, ModuleStats::yields).filter(|p| *p > 0);
    row.yields = yields(of, over);
    row.picks_ran_next = median_count(of, over, |m| m.picks_ran_next);
    let ran_next = row.picks_ran_next.zip(picked);
    row.picks_ran_next_share = ran_next.map(|(next, picked)| round(next as f64 / picked as f64));
}

/// PLE exits per epoch of the run; `None` without PLE or if none were counted.
pub(crate) fn epoch_ple_exits(r: &RunResult) -> Option<u32> {
    match &r.run.arm.window {
        Window::Aple(p) => Some(p.epoch_ple_exits),
        Window::Off => None,
        Window::Stock | Window::Fixed { .. } => r.run.epoch_ple_exits,
    }
}

/// Units of work in the measuring time, median over repeats.
fn work_units(of: &[&RunResult], over: Over) -> Option<u64> {
    let units = |r: &&RunResult| vms(r, over).flat_map(|v| &v.units).sum::<u64>() as f64;
    median(&of.iter().map(units).collect::<Vec<_>>()).map(|units| units.round() as u64)
}

/// `None` for guests other than Linux.
pub(crate) fn guest(of: &[&RunResult], over: Over) -> Option<GuestKind> {
    let first = *of.first()?;
    let vm = (0..first.run.vm_count()).find(|vm| over.has(first, *vm))?;
    let found = first.vm.get(vm as usize)?.guest.as_ref()?;
    let planned = &first.run.vms[vm as usize].linux.as_ref()?.guest;
    let (kernel, lock) = (printable(&found.kernel), planned.lock.called());
    Some(GuestKind { kind: "linux", kernel, lock })
}

/// How the time of a Linux guest's vCPUs was spent.
fn add_linux(row: &mut Row, of: &[&RunResult], over: Over) {
    if row.guest.is_none() {
        return;
    }
    let looked: Vec<&Spinners> = match over.vm.is_some() && guests_differ(&of[0].run) {
        true => Vec::new(),
        false => of.iter().filter_map(|r| r.spinners.as_ref()).collect(),
    };
    row.vcpu_time = vcpu_time(of, over);
    row.spinners = spinners(&looked, |s| &s.pause, |s| s.others_pause);
    row.spinners_named = named(&looked);
    row.interrupted = spinners(&looked, |s| &s.interrupted, |s| s.others_interrupted);
}

/// Whether the VMs' kernels or locks differ. Then places of all VMs are not those of one of them.
fn guests_differ(run: &Run) -> bool {
    let guest = |vm: &Vm| {
        let guest = &vm.linux.as_ref()?.guest;
        Some((guest.kernel.clone(), guest.lock))
    };
    run.vms.iter().any(|vm| guest(vm) != guest(run.first()))
}

/// A sum that saturates, because records may contain any numbers.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// The most frequent places of one kind, by symbol. `others`: exits of that kind at places that are
/// not listed.
fn spinners(
    looked: &[&Spinners],
    kind: fn(&Spinners) -> &Vec<SpinPlace>,
    others: fn(&Spinners) -> u64,
) -> Vec<Spinner> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for place in looked.iter().flat_map(|s| kind(s)) {
        let unknown = || format!("{:#x}", place.address);
        let symbol = place.symbol.as_deref().map_or_else(unknown, printable);
        let count = counts.entry(symbol).or_default();
        *count = count.saturating_add(place.count);
    }
    let others = looked.iter().map(|s| others(s));
    let total = sum(counts.values().copied().chain(others)) as f64;
    let mut all: Vec<(String, u64)> = counts.into_iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let share = |count: u64| round(count as f64 / total);
    let spinner = |(symbol, count)| Spinner { symbol, share: share(count) };
    all.into_iter().take(SPINNERS_SHOWN).map(spinner).collect()
}

/// The share of observed pause-loop exits at places with a name. Places that are not listed have
/// none.
fn named(looked: &[&Spinners]) -> Option<f64> {
    let places = || looked.iter().flat_map(|s| &s.pause);
    let others = looked.iter().map(|s| s.others_pause);
    let all = sum(places().map(|place| place.count).chain(others));
    let named = sum(places().filter(|place| place.symbol.is_some()).map(|place| place.count));
    (all > 0).then(|| round(named as f64 / all as f64))
}

/// Shares of the vCPUs' time, all repeats together; `None` if the host's kernel does not count it.
fn vcpu_time(of: &[&RunResult], over: Over) -> Option<VcpuTime> {
    let (mut whole, mut on_cpu, mut waiting, mut switches) = (0, 0, 0, 0);
    let mut polling = Some(0);
    for r in of {
        let mine = r.run.vms.iter().zip(&r.vm).zip(0..).filter(|(_, vm)| over.has(r, *vm));
        for ((vm, v), _) in mine {
            let sched = v.sched.as_ref()?;
            whole += r.window_ns * u64::from(vm.vcpus);
            on_cpu += v.cpu_ns.iter().sum::<u64>();
            polling = polling.zip(polled_ns(v)).map(|(sum, ns)| sum + ns);
            waiting += sched.steal_ns.as_ref()?.iter().sum::<u64>();
            switches += sched.voluntary_switches.iter().sum::<u64>();
        }
    }
    let share = |ns: u64| (whole > 0).then(|| round(ns as f64 / whole as f64));
    let halted = whole.saturating_sub(on_cpu + waiting);
    Some(VcpuTime {
        running: share(on_cpu - polling.unwrap_or(0))?,
        polling: polling.and_then(share),
        waiting: share(waiting)?,
        halted: share(halted)?,
        halts_per_s: round(switches as f64 * 1e9 / whole as f64),
    })
}

fn wait_cycles(of: &[&RunResult], over: Over, wait_hist: &[u64]) -> WaitCycles {
    let percentile = |q| log2_percentile(wait_hist, q).map(|c| c as u64);
    let longest = of.iter().flat_map(|r| vms(r, over)).map(|v| v.max_wait_cycles).max();
    WaitCycles {
        p50: percentile(0.5),
        p99: percentile(0.99),
        max: longest.filter(|_| wait_hist.iter().any(|n| *n > 0)),
    }
}
