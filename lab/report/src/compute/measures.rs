// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of runs, over all VMs or some of them: throughput, inefficiency, time, windows, waits.

use crate::stat::{jain, median, round};
use crate::summary::{CostNs, TimeShares, WindowCycles, Yields};
use unspin_scenario::plan::{Vm, Window, YieldTo};
use unspin_scenario::result::{Attribution, ModuleStats, RunResult, VmResult};

/// The VMs of a figure: all, a group of equal VMs, or one.
#[derive(Clone, Copy)]
pub(crate) struct Over<'a> {
    /// `None`: all VMs, equal or not.
    pub group: Option<&'a str>,
    /// One VM of the group; `None`: all.
    pub vm: Option<u32>,
}

impl Over<'_> {
    pub const ALL: Over<'static> = Over { group: None, vm: None };

    /// Whether VM number `vm` of the run counts.
    pub fn has(&self, r: &RunResult, vm: u32) -> bool {
        let group = r.run.vms.get(vm as usize).map_or("", |vm| &vm.group);
        let in_group = group.is_empty() || self.group.is_none_or(|only| only == group);
        in_group && self.vm.is_none_or(|only| only == vm)
    }
}

/// The VMs of a figure.
pub(crate) fn vms<'a>(r: &'a RunResult, over: Over<'a>) -> impl Iterator<Item = &'a VmResult> {
    (0..).zip(&r.vm).filter(move |(vm, _)| over.has(r, *vm)).map(|(_, v)| v)
}

pub(crate) fn per_second(r: &RunResult, units: u64) -> f64 {
    units as f64 * 1e9 / r.window_ns as f64
}

/// Work units per second.
pub(crate) fn throughput(r: &RunResult, over: Over) -> f64 {
    per_second(r, vms(r, over).flat_map(|v| &v.units).sum())
}

/// Sum of a counter over the VMs; `None` unless the module counted for all of them.
pub(crate) fn counted(r: &RunResult, over: Over, f: impl Fn(&ModuleStats) -> u64) -> Option<u64> {
    let all = vms(r, over).map(|v| v.module.as_ref());
    let all: Vec<&ModuleStats> = all.collect::<Option<_>>()?;
    (!all.is_empty()).then(|| all.into_iter().map(f).sum())
}

pub(crate) fn median_count(
    runs: &[&RunResult],
    over: Over,
    f: impl Fn(&ModuleStats) -> u64,
) -> Option<u64> {
    let all: Vec<f64> =
        runs.iter().filter_map(|r| counted(r, over, &f)).map(|n| n as f64).collect();
    median(&all).map(|m| m.round() as u64)
}

/// Σ(spin + switch) ÷ Σ CPU cycles. Unknown without PLE, whose exits it counts.
pub(crate) fn inefficiency(r: &RunResult, over: Over) -> Option<f64> {
    if r.run.arm.window == Window::Off {
        return None;
    }
    let wasted = counted(r, over, |m| m.wasteful_spin_cycles + m.wasteful_switch_cycles)?;
    let cpu = counted(r, over, |m| m.cpu_cycles)?;
    (cpu > 0).then(|| wasted as f64 / cpu as f64)
}

/// Shares of all repeats together; `None` if the machine cannot attribute time.
pub(crate) fn time_shares(of: &[&RunResult], over: Over) -> Option<TimeShares> {
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

/// Time by factor, all repeats together; `None` if the machine cannot attribute it, or the parts in
/// a record exceed their whole.
pub(crate) fn cost(of: &[&RunResult], over: Over) -> Option<CostNs> {
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

/// Mean number of cycles to handle a PLE exit.
pub(crate) fn exit_handling(r: &RunResult, over: Over) -> Option<f64> {
    let cycles = counted(r, over, |m| m.wasteful_switch_cycles)?;
    let exits = counted(r, over, |m| m.ple_exits)?;
    (exits > 0).then(|| cycles as f64 / exits as f64)
}

/// Jain's index over the vCPUs of a VM, mean over VMs.
pub(crate) fn fairness_vcpus(r: &RunResult, over: Over) -> Option<f64> {
    let each: Vec<f64> = vms(r, over)
        // A Linux guest has one count for all its vCPUs.
        .filter(|v| v.guest.is_none())
        .filter_map(|v| jain(&v.units.iter().map(|u| *u as f64).collect::<Vec<_>>()))
        .collect();
    (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
}

/// Jain's index over all vCPUs of all VMs together.
pub(crate) fn fairness_all_vcpus(r: &RunResult, over: Over) -> Option<f64> {
    jain(&vms(r, over).flat_map(|v| &v.units).map(|u| *u as f64).collect::<Vec<_>>())
}

/// Jain's index over VMs, each divided by its weight.
pub(crate) fn fairness_vms(r: &RunResult, over: Over) -> Option<f64> {
    let weight = |vm: &Vm| vm.weight.map_or(1.0, f64::from);
    let share: Vec<f64> =
        r.vm.iter()
            .zip(&r.run.vms)
            .zip(0..)
            .filter(|(_, i)| over.has(r, *i))
            .map(|((v, vm), _)| v.units.iter().sum::<u64>() as f64 / weight(vm))
            .collect();
    jain(&share)
}

/// The part of a Linux guest's CPU time in which KVM polled for the end of a halt: others could
/// have run, and the guest did nothing. `None` if unknown, and for other guests.
pub(crate) fn polled_ns(v: &VmResult) -> Option<u64> {
    v.guest.as_ref()?;
    // Both are read one after the other.
    Some(v.halt_poll_ns?.min(v.cpu_ns.iter().sum()))
}

/// CPU time per second of the measuring time, s; median.
pub(crate) fn cpus_used(of: &[&RunResult], over: Over) -> Option<f64> {
    let used = |r: &&RunResult| {
        vms(r, over).flat_map(|v| &v.cpu_ns).sum::<u64>() as f64 / r.window_ns as f64
    };
    median(&of.iter().map(used).collect::<Vec<_>>())
}

/// Least number of rounds of any VM in any run. Unknown unless the module counted in all.
pub(crate) fn rounds(of: &[&RunResult], over: Over) -> Option<u64> {
    of.iter()
        .flat_map(|r| vms(r, over))
        .map(|v| v.module.as_ref().map(|m| m.rounds_total))
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .min()
}

/// Whether the arm adapts windows and leaves yields to KVM.
pub(crate) fn is_aple_alone(r: &RunResult) -> bool {
    adapts(r) && r.run.arm.yield_to == YieldTo::Stock
}

fn adapts(r: &RunResult) -> bool {
    matches!(&r.run.arm.window, Window::Aple(p) if p.delta_cycles > 0)
}

/// Whether an epoch ended in any VM of any run, so that its window moved. Unknown if nothing
/// adapts, or unless the module counted in all.
pub(crate) fn any_epoch_ended(of: &[&RunResult], over: Over) -> Option<bool> {
    if !of.iter().any(|r| adapts(r)) {
        return None;
    }
    let all = of.iter().flat_map(|r| vms(r, over)).map(|v| v.module.as_ref());
    let all: Vec<&ModuleStats> = all.collect::<Option<_>>()?;
    // Epochs are counted in the measuring time, rounds since the VM started.
    Some(all.iter().any(|m| m.epochs > 0 || m.rounds_total > 0))
}

pub(crate) fn yields(of: &[&RunResult], over: Over) -> Option<Yields> {
    Some(Yields {
        resource_waiter: median_count(of, over, |m| m.yields_resource_waiter)?,
        lock_waiter: median_count(of, over, |m| m.yields_lock_waiter)?,
        yielded: median_count(of, over, |m| m.yields_yielded)?,
        woken: median_count(of, over, |m| m.yields_woken)?,
        none: median_count(of, over, |m| m.yields_none)?,
        gave_way: median_count(of, over, |m| m.yields_gave_way)?,
        failed: median_count(of, over, |m| m.yields_failed)?,
    })
}

/// If KVM picks by itself, the module sees the exits but not the results.
pub(crate) fn picks_are_kvms_own(of: &[&RunResult], over: Over) -> bool {
    let seen = |m: &ModuleStats| m.yields() + m.yields_none + m.yields_gave_way + m.yields_failed;
    of.iter().all(|r| {
        r.run.arm.yield_to == YieldTo::Stock
            && counted(r, over, seen) == Some(0)
            && counted(r, over, |m| m.ple_exits).is_some_and(|n| n > 0)
    })
}

/// Waits by power of two of cycles, all runs together.
pub(crate) fn merged_waits(of: &[&RunResult], over: Over) -> Vec<u64> {
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

/// PLE windows: over the traced epochs, and at the end.
pub(crate) fn window_cycles(of: &[&RunResult], over: Over) -> WindowCycles {
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
