// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exported values of each VM. Counters are sums over samples, and never decrease.

use crate::watch::facts::Facts;
use crate::watch::{did, Running, Sample, Source};
use std::collections::{BTreeMap, BTreeSet};
use unspin_diagnosis::{losses, Cause, State, Times};
use unspin_host::VmProcess;
use unspin_probe::{Seen, Thread};

pub struct Collector {
    source: Box<dyn Source + Send>,
    vcpus_max: usize,
    before: Option<Sample>,
    /// By process id.
    vms: BTreeMap<u32, OfVm>,
    left_out: BTreeSet<Thread>,
    /// Total number of vCPUs that were not exported at some time.
    pub left_out_total: u64,
}

pub struct OfVm {
    /// Its label, unique among running VMs.
    pub label: String,
    pub process: VmProcess,
    pub vcpus: BTreeMap<Thread, OfVcpu>,
}

#[derive(Default)]
pub struct OfVcpu {
    pub number: u32,
    /// Times since it is watched.
    pub times: Times,
    /// How long it was ready while a sibling was on a CPU, in ns; `None` is unknown.
    pub costop: Option<u64>,
    pub tells_throttled: bool,
    /// Seconds, in the order of [`Cause::ALL`]; `None`: unknown in every sample so far.
    pub lost: [Option<f64>; Cause::ALL.len()],
}

impl Collector {
    pub fn new(source: Box<dyn Source + Send>, vcpus_max: usize) -> Collector {
        Collector {
            source,
            vcpus_max,
            before: None,
            vms: BTreeMap::new(),
            left_out: BTreeSet::new(),
            left_out_total: 0,
        }
    }

    pub fn look(&mut self) -> anyhow::Result<()> {
        self.source.look()
    }

    /// Takes a sample. Says once that VMs have no room.
    pub fn collect(&mut self) -> anyhow::Result<()> {
        let sample = self.source.sample()?;
        let is_first = self.left_out_total == 0;
        self.take(sample);
        if is_first && self.left_out_total > 0 {
            say!(
                "unspin: {} vCPUs are not exported: there is no room for all vCPUs of their VMs \
                 (--vcpus-max {}); the metric unspin_exporter_vcpus counts them",
                self.left_out_total,
                self.vcpus_max
            );
        }
        Ok(())
    }

    pub fn vms(&self) -> impl Iterator<Item = &OfVm> {
        self.vms.values()
    }

    pub fn facts(&self) -> Option<&Facts> {
        self.before.as_ref().map(|sample| &*sample.facts)
    }

    /// VMs that are not watched because the limit is reached.
    pub fn unwatched(&self) -> usize {
        self.before.as_ref().map_or(0, |sample| sample.left_out)
    }

    pub fn exported(&self) -> usize {
        self.vms.values().map(|vm| vm.vcpus.len()).sum()
    }

    /// vCPUs that are not exported because the limit is reached.
    pub fn left_out(&self) -> usize {
        self.left_out.len()
    }

    pub(super) fn take(&mut self, after: Sample) {
        let same = |of_vm: &OfVm, vm: &Running| of_vm.process.names == vm.process.names;
        let runs: BTreeMap<u32, &Running> =
            after.vms.iter().map(|vm| (vm.process.pid, vm)).collect();
        // The process id may belong to another VM by now.
        self.vms.retain(|pid, of_vm| runs.get(pid).is_some_and(|vm| same(of_vm, vm)));
        let mut left_out = BTreeSet::new();
        for (pid, vm) in &runs {
            let threads = vcpus(vm, &after.seen);
            if !self.vms.contains_key(pid) {
                let label = self.label(&vm.process);
                let of_vm = OfVm { label, process: vm.process.clone(), vcpus: BTreeMap::new() };
                self.vms.insert(*pid, of_vm);
            }
            let room = self.vcpus_max.saturating_sub(self.exported());
            let Some(of_vm) = self.vms.get_mut(pid) else { continue };
            left_out.extend(of_vm.hold(vm, &threads, room).iter().copied());
            let first = &BTreeMap::new();
            let (before, facts) = match &self.before {
                Some(before) => (&before.seen, &before.facts),
                None => (first, &after.facts),
            };
            for (thread, vcpu) in &mut of_vm.vcpus {
                let before = before.get(thread).cloned().unwrap_or_default();
                vcpu.add(*pid, &before, &after.seen[thread], (facts, &after.facts));
            }
        }
        self.left_out_total += left_out.difference(&self.left_out).count() as u64;
        self.left_out = left_out;
        self.before = Some(after);
    }

    /// Its name. The process id is added if another VM had the same name when this one appeared.
    fn label(&self, process: &VmProcess) -> String {
        let pid = process.pid;
        let mut label = process.title().to_string();
        while self.vms.values().any(|vm| vm.label == label) {
            label += &format!(" (process {pid})");
        }
        label
    }
}

/// The threads of vCPUs. If these are unknown, the threads that have left a guest.
fn vcpus(vm: &Running, seen: &BTreeMap<Thread, Seen>) -> Vec<Thread> {
    let is_vcpu = |thread: &Thread| match seen.get(thread) {
        Some(seen) => vm.number(thread.tid).is_some() || seen.exits.total() > 0,
        None => false,
    };
    vm.watched().filter(is_vcpu).collect()
}

impl OfVm {
    /// Keeps these vCPUs, adds new ones, drops all others. If there is no room for all, it drops all. Returns
    /// those without room.
    fn hold<'t>(&mut self, vm: &Running, threads: &'t [Thread], room: usize) -> &'t [Thread] {
        if threads.len() > room + self.vcpus.len() {
            self.vcpus.clear();
            return threads;
        }
        let now: BTreeSet<Thread> = threads.iter().copied().collect();
        self.vcpus.retain(|thread, _| now.contains(thread));
        for thread in threads {
            if self.vcpus.contains_key(thread) {
                continue;
            }
            let number = self.number(vm, thread.tid);
            let vcpu = OfVcpu { number, ..OfVcpu::default() };
            self.vcpus.insert(*thread, vcpu);
        }
        &[]
    }

    /// The number in the thread's name. If the name has no number, or another vCPU uses it, the lowest
    /// free number.
    fn number(&self, vm: &Running, tid: u32) -> u32 {
        let taken: BTreeSet<u32> = self.vcpus.values().map(|vcpu| vcpu.number).collect();
        let said = vm.number(tid).filter(|number| !taken.contains(number));
        let is_free = |number: &u32| !taken.contains(number);
        said.or_else(|| (0..).find(is_free)).unwrap_or_default()
    }
}

impl OfVcpu {
    /// Whether its time in a state is known. It is unknown until the vCPU was observed.
    pub fn knows(&self, state: State) -> bool {
        self.times.total() > 0 && (self.tells_throttled || state != State::Throttled)
    }

    /// Adds its times between two readings.
    fn add(&mut self, pid: u32, before: &Seen, after: &Seen, facts: (&Facts, &Facts)) {
        // A reading contains the present state. The next reading may correct it, and then has less of
        // a state.
        for state in State::ALL {
            self.times[*state] = self.times[*state].max(after.times[*state]);
        }
        self.costop = after.costop.map(|now| self.costop.unwrap_or(0).max(now));
        self.tells_throttled = after.tells_throttled;
        let did = did(pid, [&after.since(before)], facts.0, facts.1);
        let window_s = did.window_ns as f64 / 1e9;
        for (sum, loss) in self.lost.iter_mut().zip(losses(&did)) {
            if let Some(lost) = loss.lost_s_per_s {
                *sum = Some(sum.unwrap_or(0.0) + lost * window_s);
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::watch::Synthetic;
    use proptest::prelude::*;
    use std::time::Duration;
    use unspin_host::{tell_apart, Kind, Names};

    pub fn collector(vms: usize, vcpus: u32, vcpus_max: usize) -> Collector {
        Collector::new(Box::new(Synthetic::new(vms, vcpus)), vcpus_max)
    }

    fn at(second: u64, vms: usize) -> Sample {
        Synthetic::new(vms, 2).at(Duration::from_secs(second))
    }

    fn named(sample: &mut Sample, names: &[&str]) {
        let of = |(vm, name): (&mut Running, &&str)| {
            vm.process.names = Names::default().with(Kind::Name, *name);
            vm.process.clone()
        };
        let mut processes: Vec<VmProcess> = sample.vms.iter_mut().zip(names).map(of).collect();
        tell_apart(&mut processes, &[]);
        for (vm, process) in sample.vms.iter_mut().zip(processes) {
            vm.process = process;
        }
    }

    fn labels(collector: &Collector) -> Vec<&str> {
        collector.vms().map(|vm| vm.label.as_str()).collect()
    }

    #[test]
    fn lost_time_is_summed_up_by_cause() {
        let mut collector = collector(2, 2, 100);
        collector.take(at(10, 2));
        collector.take(at(20, 2));
        let web = collector.vms().next().unwrap();
        let vcpu = web.vcpus.values().next().unwrap();
        assert_eq!(vcpu.times.total(), 20_000_000_000);
        // 33 % of 20 s.
        let lost = vcpu.lost[Cause::Contention as usize].unwrap();
        assert!((lost - 6.6).abs() < 1e-6, "{lost}");
        assert_eq!(vcpu.lost[Cause::Cache as usize], None, "unknown is not 0");
        // Exits are counted. Each stands for a window of 4096 cycles at 2 GHz.
        let db = collector.vms().nth(1).unwrap().vcpus.values().next().unwrap();
        let lost = db.lost[Cause::SpinSwitch as usize].unwrap();
        assert!((lost - (0.15 * 20.0 + 20_000.0 * 20.0 * 2048e-9)).abs() < 1e-3, "{lost}");
    }

    #[test]
    fn vms_come_and_go_and_keep_their_labels() {
        let mut collector = collector(0, 1, 100);
        let mut sample = at(10, 3);
        named(&mut sample, &["web1", "web1", ""]);
        collector.take(sample);
        let both = ["web1 (process 100000)", "web1 (process 101000)", "pid:102000"];
        assert_eq!(labels(&collector), both);
        let mut sample = at(11, 2);
        sample.vms.remove(0);
        named(&mut sample, &["web1"]);
        collector.take(sample);
        assert_eq!(labels(&collector), ["web1 (process 101000)"], "though the name is free");
        // Another VM has the process id now.
        let mut sample = at(12, 2);
        named(&mut sample, &["web1", "db1"]);
        collector.take(sample);
        assert_eq!(labels(&collector), ["web1", "db1"]);
        let mut sample = at(12, 3);
        named(&mut sample, &["web1", "db1", "web1"]);
        sample.vms.remove(1);
        collector.take(sample);
        assert_eq!(labels(&collector), ["web1", "web1 (process 102000)"]);
        let mut sample = at(13, 1);
        named(&mut sample, &[&"x".repeat(1000)]);
        collector.take(sample);
        assert_eq!(labels(&collector), ["x".repeat(127) + "…"]);
    }

    #[test]
    fn vcpus_have_numbers_of_their_own() {
        let mut collector = collector(0, 1, 100);
        let mut sample = at(10, 1);
        for vcpu in &mut sample.vms[0].process.vcpus {
            vcpu.index = 7;
        }
        collector.take(sample);
        let numbers = |collector: &Collector| -> Vec<u32> {
            let vm = collector.vms().next().unwrap();
            vm.vcpus.values().map(|vcpu| vcpu.number).collect()
        };
        assert_eq!(numbers(&collector), [7, 0]);
        // Without names, a thread that has left a guest is a vCPU, and remains one.
        let mut sample = at(11, 1);
        sample.vms[0].process.vcpus.clear();
        named(&mut sample, &["other"]);
        let last = *sample.seen.keys().last().unwrap();
        sample.seen.get_mut(&last).unwrap().exits[State::ExitHalt] = 1;
        collector.take(sample);
        assert_eq!(numbers(&collector), [0]);
    }

    #[test]
    fn a_vm_has_room_for_all_of_its_vcpus_or_for_none() {
        let mut collector = collector(0, 1, 5);
        let exported = |collector: &Collector| -> Vec<usize> {
            collector.vms().map(|vm| vm.vcpus.len()).collect()
        };
        let mut first = at(10, 3);
        let last = first.vms[1].process.vcpus.pop().unwrap();
        first.vms[1].threads.retain(|tid| *tid != last.tid);
        collector.take(first);
        assert_eq!((exported(&collector), collector.left_out()), (vec![2, 1, 2], 0));
        collector.take(at(11, 3));
        assert_eq!((exported(&collector), collector.left_out()), (vec![2, 0, 2], 2), "it grew");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn cardinality_is_bounded_and_counters_never_go_back(
            vms in prop::collection::vec((0..20usize, 0..100u64), 1..10),
            vcpus_max in 0..50usize,
        ) {
            let mut collector = collector(0, 2, vcpus_max);
            let mut last: BTreeMap<Thread, (Times, f64)> = BTreeMap::new();
            for (count, second) in vms {
                // Time may seem to run backwards.
                collector.take(at(second, count));
                let exported = 2 * count.min(vcpus_max / 2);
                prop_assert_eq!(collector.exported(), exported, "whole VMs");
                prop_assert_eq!(collector.left_out(), 2 * count - exported);
                prop_assert!(collector.left_out_total >= collector.left_out() as u64);
                let labels: BTreeSet<&str> = labels(&collector).into_iter().collect();
                prop_assert_eq!(labels.len(), count);
                let mut now = BTreeMap::new();
                for (thread, vcpu) in collector.vms().flat_map(|vm| &vm.vcpus) {
                    let lost = vcpu.lost.iter().flatten().sum();
                    if let Some((times, lost_before)) = last.get(thread) {
                        prop_assert!(lost >= *lost_before);
                        let grew = |state: &State| vcpu.times[*state] >= times[*state];
                        prop_assert!(State::ALL.iter().all(grew));
                    }
                    now.insert(*thread, (vcpu.times.clone(), lost));
                }
                last = now;
            }
        }
    }
}
