// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns one after another (policy/gang.h): owners run on their pCPUs and rivals do not. On pCPUs
//! without an owner a scheduler divides the time by weight.

use super::gang_checks::{Host, LOW};
use super::{property, Api};
use proptest::prelude::*;
use unspin_policy::gang::{CpuSet, Vcpu, Vm};

const TURN: u64 = 10_000_000;

/// A host at work.
struct Run<'a> {
    api: &'a Api,
    host: Host<'a>,
    length: u64,
    fills: bool,
    /// Of several vCPUs of the group on a pCPU, those of the last VM have all its time.
    greedy: bool,
    /// CPU time of each VM, in turns: its part under the scheduler alone, and what it got.
    due: Vec<f64>,
    got: Vec<f64>,
    /// Turns since each VM wanted nothing or had CPU time.
    waits: Vec<u32>,
}

impl<'a> Run<'a> {
    fn new(api: &'a Api, host: Host<'a>, length: u64, fills: bool) -> Self {
        let vms = host.vms.len();
        let (due, got, waits) = (vec![0.0; vms], vec![0.0; vms], vec![0; vms]);
        Run { api, host, length, fills, greedy: false, due, got, waits }
    }

    fn turn(&mut self) {
        self.turn_after(|_| ());
    }

    /// `change` happens between a turn and the next.
    fn turn_after(&mut self, change: impl FnOnce(&mut [Vm])) {
        self.host.account(self.api, self.length);
        change(&mut self.host.vms);
        self.host.turn(self.api);
        for vcpu in &mut self.host.vcpus {
            vcpu.got = 0;
            // Who sleeps stays where it is.
            if let (Some(target), 1) = (vcpu.target(), vcpu.wants) {
                vcpu.cpu = target as u32;
            }
        }
        let mut due = vec![0.0; self.host.vcpus.len()];
        for cpu in 0..self.host.cpus.len() {
            self.cpu_runs(cpu, &mut due);
        }
        self.balance(&mut due);
        for vm in 0..self.host.vms.len() {
            let ran = self.host.of(vm).any(|v| self.host.vcpus[v].got > 0);
            let waits = !ran && !self.host.wanting(vm).is_empty();
            self.waits[vm] = if waits { self.waits[vm] + 1 } else { 0 };
        }
    }

    fn cpu_runs(&mut self, cpu: usize, due: &mut [f64]) {
        let mut here: Vec<(usize, usize)> = Vec::new();
        for vm in 0..self.host.vms.len() {
            let wanting = self.host.wanting(vm).into_iter();
            here.extend(wanting.filter(|&v| self.host.vcpus[v].cpu == cpu as u32).map(|v| (vm, v)));
        }
        let mut runs = here.clone();
        runs.retain(|&(vm, _)| self.host.may_run(self.api, vm as u32, cpu as u32));
        if runs.is_empty() && self.fills {
            let filler = self.host.fill(self.api, &here);
            assert_eq!(filler.is_none(), here.is_empty());
            runs = here.iter().copied().filter(|&(_, v)| Some(v) == filler).collect();
        }
        if self.greedy && self.host.cpus[cpu].owner == LOW {
            let last = runs.iter().map(|&(vm, _)| vm).max();
            runs.retain(|&(vm, _)| Some(vm) == last);
        }
        self.divide(&here, &runs, due);
    }

    /// A turn's time on a pCPU, by weight.
    fn divide(&mut self, here: &[(usize, usize)], runs: &[(usize, usize)], due: &mut [f64]) {
        let weight = |all: &[(usize, usize)]| -> u64 {
            all.iter().map(|&(_, v)| u64::from(self.host.vcpus[v].weight)).sum()
        };
        let (of_here, of_runs) = (weight(here), weight(runs));
        for &(_, v) in here {
            if !runs.is_empty() {
                due[v] = f64::from(self.host.vcpus[v].weight) / of_here as f64;
            }
        }
        for &(vm, v) in runs {
            let weight = u64::from(self.host.vcpus[v].weight);
            self.host.vcpus[v].got = TURN * weight / of_runs;
            self.got[vm] += weight as f64 / of_runs as f64;
        }
    }

    /// vCPUs that are not pinned divide their parts by weight, up to a pCPU for each.
    fn balance(&mut self, due: &mut [f64]) {
        let loose = |v: &usize| self.host.vcpus[*v].allowed.is_some() && due[*v] > 0.0;
        let mut pool: Vec<usize> = (0..due.len()).filter(loose).collect();
        let weight = |v: usize| f64::from(self.host.vcpus[v].weight);
        pool.sort_by(|&a, &b| weight(b).total_cmp(&weight(a)));
        let mut time: f64 = pool.iter().map(|&v| due[v]).sum();
        let mut weights: f64 = pool.iter().map(|&v| weight(v)).sum();
        for v in pool {
            due[v] = (time * weight(v) / weights).min(1.0);
            time -= due[v];
            weights -= weight(v);
        }
        for vm in 0..self.due.len() {
            self.due[vm] += self.host.of(vm).map(|v| due[v]).sum::<f64>();
        }
    }
}

/// VMs on each pCPU of a part of the host: how many vCPUs on each, their weight, HIGH.
type Part = (usize, Vec<(usize, u32, bool)>);

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let vm = (1..4usize, 1..100u32, any::<bool>());
    prop::collection::vec((1..5usize, prop::collection::vec(vm, 1..6)), 1..4)
}

fn host_of(parts: &[Part]) -> Host<'static> {
    let mut vms = Vec::new();
    let mut first = 0;
    for (cpus, here) in parts {
        for &(each, weight, high) in here {
            let vcpus = (first..first + cpus).flat_map(|cpu| (0..each).map(move |_| cpu));
            let vcpus = vcpus.map(|cpu| Vcpu { wants: 1, ..Vcpu::new(cpu as u32, weight) });
            vms.push((Vm { high: high.into(), ..Vm::default() }, vcpus.collect()));
        }
        first += cpus;
    }
    Host::new(first, &vms)
}

/// VMs that are alike on all of their pCPUs get what the scheduler alone would have given them,
/// two turns early or late at most, even where they begin and end to spin; three where
/// a VM comes first because it had none for long.
pub fn gang_shares_by_weight(api: &Api) {
    let length = prop::sample::select(vec![TURN / 2, TURN, u64::MAX]);
    let flip = prop::sample::select(vec![1, 3, 7, 20, usize::MAX]);
    let flips = (flip, prop::collection::vec(0..100usize, 200));
    property(
        400,
        (parts(), length, any::<bool>(), flips),
        |(parts, length, fills, (flip, who))| {
            let mut run = Run::new(api, host_of(&parts), length, fills);
            let vms = run.host.vms.len();
            for (turn, who) in who.into_iter().enumerate() {
                run.turn_after(|all| all[who % vms].high ^= u8::from(turn % flip == flip - 1));
                for (i, vm) in run.host.vms.iter().enumerate() {
                    let ahead = (run.got[i] - run.due[i]) / f64::from(vm.wanting);
                    assert!(ahead.abs() <= 3.0, "VM {i} is {ahead} turns ahead after {turn}");
                }
            }
        },
    );
}

/// VMs that spin get their share, and the group gets its own, even where some of the group leave
/// their time to others of it.
pub fn gang_group_is_owed_as_one(api: &Api) {
    property(400, (parts(), any::<bool>()), |(parts, fills)| {
        let mut run = Run::new(api, host_of(&parts), TURN, fills);
        run.greedy = true;
        for _ in 0..200 {
            run.turn();
        }
        for (i, vm) in run.host.vms.iter().enumerate().filter(|(_, vm)| vm.is_high()) {
            let ahead = (run.got[i] - run.due[i]) / f64::from(vm.wanting);
            assert!(ahead.abs() <= 4.0, "VM {i}, which spins, is {ahead} turns ahead");
        }
    });
}

/// A VM at any place: weight, HIGH, sleeps now and then, pCPUs of its vCPUs and whether they are
/// pinned.
type Loose = (u32, bool, bool, Vec<(u32, bool)>);

fn loose() -> impl Strategy<Value = (u32, Vec<Loose>)> {
    let vcpus = prop::collection::vec((0..8u32, any::<bool>()), 1..9);
    let vm = (1..9u32, any::<bool>(), (0..4u8).prop_map(|n| n == 0), vcpus);
    (1..9u32, prop::collection::vec(vm, 2..7))
}

fn loose_host<'a>(cpus: u32, vms: &[Loose], everywhere: &'a CpuSet) -> Host<'a> {
    let vm = |&(weight, high, _, ref vcpus): &Loose| {
        let vcpus = vcpus.iter().map(|&(cpu, pinned)| Vcpu {
            wants: 1,
            allowed: (!pinned).then_some(everywhere),
            ..Vcpu::new(cpu % cpus, weight)
        });
        (Vm { high: high.into(), ..Vm::default() }, vcpus.collect())
    };
    Host::new(cpus as usize, &vms.iter().map(vm).collect::<Vec<_>>())
}

/// Wherever VMs are: one that always wants to run does so again soon, and gets a quarter of its
/// share at least.
pub fn gang_starves_nobody(api: &Api) {
    let length = prop::sample::select(vec![0, TURN / 2, TURN, 2 * TURN]);
    let naps = prop::collection::vec(any::<u16>(), 300);
    property(400, (loose(), length, naps), |((cpus, vms), length, naps)| {
        let everywhere: CpuSet = (0..cpus as usize).collect();
        let mut run = Run::new(api, loose_host(cpus, &vms, &everywhere), length, true);
        for nap in naps {
            let vm = nap as usize % vms.len();
            for (bit, v) in run.host.of(vm).enumerate().filter(|_| vms[vm].2) {
                run.host.vcpus[v].wants = (nap >> (8 + bit) & 1) as u8;
            }
            run.turn();
            let waits = run.waits.iter().zip(&vms).filter(|(_, vm)| !vm.2).map(|(waits, _)| *waits);
            assert!(waits.max().unwrap_or(0) <= 100, "one waits for {:?} turns", run.waits);
        }
        for (i, _) in vms.iter().enumerate().filter(|(_, vm)| !vm.2) {
            assert!(run.got[i] >= 0.25 * run.due[i], "{} of {}", run.got[i], run.due[i]);
        }
    });
    // Four that spin, each on pCPU 0 and one more, with one that does not on each pCPU. While one
    // of them has its turn those on the others' pCPUs get more than their share; not so on pCPU 0.
    let spins = |cpu: u32| (1, true, false, vec![(0, true), (cpu, true)]);
    let computes = |cpu: u32| (1, false, false, vec![(cpu, true)]);
    let vms: Vec<Loose> = (0..5).map(computes).chain((1..5).map(spins)).collect();
    let everywhere: CpuSet = (0..5).collect();
    let mut run = Run::new(api, loose_host(5, &vms, &everywhere), TURN, true);
    (0..300).for_each(|_| run.turn());
    assert!(run.got[0] >= 0.75 * run.due[0], "{} of {}", run.got[0], run.due[0]);
}

/// VMs of equal weights whose vCPUs are pinned nowhere: how many vCPUs, HIGH. Share of the host and of the
/// turns of each.
fn shares(api: &Api, cpus: usize, vms: &[(u32, bool)]) -> (Vec<f64>, Vec<f64>) {
    const TURNS: u32 = 1000;
    let everywhere: CpuSet = (0..cpus).collect();
    let vm = |&(vcpus, high): &(u32, bool)| {
        let vcpus = (0..vcpus).map(|v| Vcpu {
            wants: 1,
            allowed: Some(&everywhere),
            ..Vcpu::new(v % cpus as u32, 8192 / vcpus)
        });
        (Vm { high: high.into(), ..Vm::default() }, vcpus.collect())
    };
    let host = Host::new(cpus, &vms.iter().map(vm).collect::<Vec<_>>());
    let mut run = Run::new(api, host, TURN, true);
    let mut turns = vec![0.0; vms.len()];
    for _ in 0..TURNS {
        run.turn();
        for (turns, vm) in turns.iter_mut().zip(&run.host.vms) {
            *turns += f64::from(u8::from(vm.last_turn == run.host.turn)) / f64::from(TURNS);
        }
    }
    for (i, (got, due)) in run.got.iter().zip(&run.due).enumerate() {
        assert!(*got >= 0.75 * due, "VM {i} of {vms:?}: {got} of {due}");
    }
    let all = cpus as f64 * f64::from(TURNS);
    (run.got.iter().map(|got| got / all).collect(), turns)
}

/// VMs that are pinned nowhere get what a fair scheduler gives them, at least three quarters of it where
/// gangs do not fit beside each other; and each gang has turns.
pub fn gang_unpinned_shares(api: &Api) {
    let (got, turns) = shares(api, 8, &[(8, true), (4, true), (2, true), (4, true)]);
    assert!((got[0] - 0.25).abs() <= 0.05, "{got:?}");
    assert!(got[2] >= 0.19, "{got:?}");
    assert!(turns[0] >= 0.15 && turns[2] >= 0.7, "{turns:?}");
    // Nor does one of the group lose to a larger one beside it.
    let (got, _) = shares(api, 8, &[(8, true), (4, true), (2, false), (4, false)]);
    assert!(got[2] >= 0.185, "{got:?}");
    // A small VM has most of a pCPU for each vCPU, and leaves the whole host to a gang now and then.
    for small in [1, 2] {
        for high in [false, true] {
            let (_, turns) = shares(api, 8, &[(8, true), (small, high)]);
            assert!(turns[0] >= 0.1, "{turns:?}");
            let (_, turns) = shares(api, 8, &[(8, true), (8, true), (small, high)]);
            assert!(turns[0] >= 0.05 && turns[1] >= 0.05, "{turns:?}");
        }
    }
    shares(api, 8, &[(8, true), (4, true), (2, true)]);
    shares(api, 8, &[(8, true), (4, true), (2, true), (4, false)]);
    shares(api, 8, &[(6, true), (3, true), (3, true), (2, true), (8, true)]);
    shares(api, 4, &[(4, true), (4, true), (3, true), (2, true), (1, true)]);
}
