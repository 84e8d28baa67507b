// SPDX-License-Identifier: MIT OR Apache-2.0
//! *Ideal*: the most work that VMs could do in the CPU time they got. A run of each VM alone shows
//! the CPU time per unit of work.

use crate::compute::measures::{cpus_used, per_second, polled_ns, throughput, vms, Over};
use crate::compute::row::{guest, key, with_spread};
use crate::stat::{median, round};
use crate::summary::{Key, Performance, Row};
use std::collections::BTreeMap;
use unspin_scenario::plan::Vm;
use unspin_scenario::result::{RunResult, VmResult};
use unspin_scenario::IDEAL_ARM;

/// Whether `r` is a run of a VM of the group alone: the same workload in the same kind of VM.
pub(crate) fn is_alone_of(r: &RunResult, with_others: &RunResult, whole: Over) -> bool {
    let (run, alone) = (&with_others.run, r.run.first());
    let kind = |vm: &Vm| (vm.vcpus, vm.lock_choice(), vm.cpl);
    match run.vms.iter().find(|vm| Some(vm.group.as_str()) == whole.group) {
        None => (&r.run.profile, &alone.linux) == (&run.profile, &run.first().linux),
        Some(vm) => {
            (&r.run.profile, kind(alone), &alone.linux) == (&vm.profile, kind(vm), &vm.linux)
        }
    }
}

/// The figures of one VM alone.
struct Alone<'a> {
    vm: &'a VmResult,
    units: u64,
    units_per_s: f64,
}

fn alone_of(r: &RunResult) -> Option<Alone<'_>> {
    let vm = r.vm.first()?;
    let units: u64 = vm.units.iter().sum();
    let cpu: u64 = vm.cpu_ns.iter().sum();
    (units > 0 && cpu > 0).then(|| Alone { vm, units, units_per_s: per_second(r, units) })
}

/// CPU time of a VM under the baseline and alone, ns. Time in which KVM polled for the end of a
/// halt is left out if it is known of both: a VM alone polls when others would have run.
fn cpu_with_and_alone(v: &VmResult, alone: &VmResult) -> (u64, u64) {
    let cpu = |v: &VmResult| v.cpu_ns.iter().sum::<u64>();
    let (with, without) = (cpu(v), cpu(alone));
    match polled_ns(v).zip(polled_ns(alone)) {
        // Alone it only polled, so there is nothing to compare.
        Some((_, polled)) if polled == without => (with, without),
        Some((polled, polled_alone)) => (with - polled, without - polled_alone),
        None => (with, without),
    }
}

/// The most work a VM could do in the CPU time it got under the baseline.
fn ideal_of_vm(v: &VmResult, window_ns: u64, alone: &Alone) -> f64 {
    let (cpu, cpu_alone) = cpu_with_and_alone(v, alone.vm);
    let cpu_ns_per_unit = cpu_alone as f64 / alone.units as f64;
    let by_cpu = cpu as f64 / cpu_ns_per_unit * 1e9 / window_ns as f64;
    alone.units_per_s.min(by_cpu)
}

pub(crate) fn ideal_row(base: &[&RunResult], alone: &[&RunResult], over: Over) -> Option<Row> {
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
    let ideal = median(&ideals)?;
    Some(Row {
        key: Key { arm: IDEAL_ARM.to_string(), ..key(&base.first()?.run, over) },
        guest: guest(base, over),
        perf: Performance {
            repeats: ideals.len(),
            performance: (base_thr > 0.0).then(|| round(ideal / base_thr)),
            throughput_per_s: Some(round(ideal)),
            ..with_spread(ratios).1
        },
        cpus_used: cpus_used(base, over).map(round),
        ..Row::default()
    })
}
