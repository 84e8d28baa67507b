// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns beside a quota (policy/gang.h): a model of a host whose scheduler lets a VM run for a part
//! of each period only, as `cpu.max` does. No pCPU idles for it, and each VM has its part under
//! stock.

use super::gang_checks::{Host, LOW, NONE};
use super::{property, Api};
use proptest::prelude::*;
use unspin_policy::gang::{Vcpu, Vm};

const STEP_US: u64 = 500;
const PERIOD_US: u64 = 100_000;

/// One vCPU of each VM on each pCPU; a VM's quota is of each pCPU and period.
struct Model<'a> {
    api: &'a Api,
    host: Host<'static>,
    cpus: usize,
    quota_us: Vec<u64>,
    /// Of the period and of all time, by vCPU.
    of_period_us: Vec<u64>,
    ran_us: Vec<u64>,
    held_back: Vec<bool>,
    idle_us: u64,
    /// Turns that each VM's own vCPUs had a pCPU in.
    owned: Vec<u64>,
}

impl<'a> Model<'a> {
    fn new(api: &'a Api, cpus: usize, vms: &[(bool, u64)]) -> Self {
        let of_vm = |&(high, _): &(bool, u64)| {
            let vcpus = (0..cpus).map(|cpu| Vcpu { wants: 1, ..Vcpu::new(cpu as u32, 1024) });
            (Vm { high: high.into(), ..Vm::default() }, vcpus.collect())
        };
        let all = cpus * vms.len();
        Model {
            api,
            host: Host::new(cpus, &vms.iter().map(of_vm).collect::<Vec<_>>()),
            cpus,
            quota_us: vms.iter().map(|vm| vm.1).collect(),
            of_period_us: vec![0; all],
            ran_us: vec![0; all],
            held_back: vec![false; all],
            idle_us: 0,
            owned: vec![0; vms.len()],
        }
    }

    fn vcpu(&self, vm: usize, cpu: usize) -> usize {
        vm * self.cpus + cpu
    }

    fn turn(&mut self, us: u64) {
        for (vcpu, &held) in self.host.vcpus.iter_mut().zip(&self.held_back) {
            vcpu.held_back = held.into();
        }
        self.host.account(self.api, us);
        self.host.turn(self.api);
        for vm in 0..self.owned.len() {
            self.owned[vm] += u64::from(self.host.owners().contains(&(vm as u32)));
        }
        self.host.vcpus.iter_mut().for_each(|vcpu| vcpu.got = 0);
    }

    /// The next to run on a pCPU, and whether it may only because no other wants to.
    fn chosen(&mut self, cpu: usize) -> Option<(usize, bool)> {
        let all: Vec<(usize, usize)> =
            (0..self.quota_us.len()).map(|vm| (vm, self.vcpu(vm, cpu))).collect();
        let (may, parked): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|&(vm, _)| self.host.may_run(self.api, vm as u32, cpu as u32));
        let has_quota = |&(vm, v): &(usize, usize)| self.of_period_us[v] < self.quota_us[vm];
        let next = may.iter().copied().filter(has_quota).min_by_key(|&(_, v)| self.ran_us[v]);
        let parked: Vec<_> = parked.into_iter().filter(has_quota).collect();
        let filler = || self.host.fill(self.api, &parked);
        let chosen = next.map(|(_, v)| (v, false)).or_else(|| Some((filler()?, true)));
        if chosen.is_none_or(|(_, fills)| fills) {
            may.iter().for_each(|&(_, v)| self.held_back[v] = true);
        }
        chosen
    }

    fn step(&mut self) {
        for cpu in 0..self.cpus {
            let Some((v, _)) = self.chosen(cpu) else {
                self.idle_us += STEP_US;
                continue;
            };
            self.held_back[v] = false;
            self.host.vcpus[v].got += STEP_US;
            self.of_period_us[v] += STEP_US;
            self.ran_us[v] += STEP_US;
        }
    }

    fn run(&mut self, turn_us: u64, periods: u64) {
        for step in 0..periods * PERIOD_US / STEP_US {
            if step * STEP_US % PERIOD_US == 0 {
                // The scheduler chooses them again, and they wait for their turns.
                self.of_period_us.fill(0);
                self.held_back.fill(false);
            }
            if step * STEP_US % turn_us == 0 {
                self.turn(turn_us);
            }
            self.step();
        }
    }

    /// Of all pCPUs, in that many periods.
    fn share(&self, vm: usize, periods: u64) -> f64 {
        let ran_us: u64 = self.host.of(vm).map(|v| self.ran_us[v]).sum();
        ran_us as f64 / (periods * PERIOD_US * self.cpus as u64) as f64
    }
}

const PERIODS: u64 = 100;

/// 20 of 100 ms for one of two VMs, and turns of 6 ms: 20 % and 80 %, whichever of them gangs. The host
/// does not idle.
pub fn gang_leaves_no_hole_beside_a_quota(api: &Api) {
    for (first, second) in [(true, false), (false, true), (true, true)] {
        for percent in [10, 20, 40] {
            let vms = [(first, percent * PERIOD_US / 100), (second, PERIOD_US)];
            let mut model = Model::new(api, 4, &vms);
            model.run(6_000, PERIODS);
            let idle = model.idle_us as f64 / (PERIODS * PERIOD_US * 4) as f64;
            let shares = [0, 1].map(|vm| model.share(vm, PERIODS));
            let expected = percent as f64 / 100.0;
            assert!(idle <= 0.02, "{idle} idle");
            assert!((shares[0] - expected).abs() <= 0.02, "{shares:?}, not {expected}");
            assert!((shares[1] + shares[0] + idle - 1.0).abs() <= 0.001, "{shares:?}");
        }
    }
}

/// A VM without quota left is not owed the time it misses: it takes no turns from the others, which
/// have what the scheduler alone gives.
pub fn gang_quota_is_counted_once(api: &Api) {
    let vms = [(true, 10_000), (true, PERIOD_US), (true, PERIOD_US)];
    let mut model = Model::new(api, 4, &vms);
    model.run(6_000, PERIODS);
    let shares = [0, 1, 2].map(|vm| model.share(vm, PERIODS));
    for (share, expected) in shares.iter().zip([0.1, 0.45, 0.45]) {
        assert!((share - expected).abs() <= 0.02, "{shares:?}");
    }
    let turns = PERIODS * PERIOD_US / 6_000;
    let of_first = model.owned[0] as f64 / turns as f64;
    assert!(of_first <= 0.25, "{of_first} of the turns are the first's, which it cannot use");
}

/// A VM of which all are held back is as one that sleeps; no pCPU is owned for one of others.
pub fn gang_held_back_owns_nothing(api: &Api) {
    let held = prop::collection::vec(any::<bool>(), 4);
    property(500, (held, -9..9i64, any::<bool>()), |(held, owed, high)| {
        let vms = [(high, PERIOD_US), (true, PERIOD_US)];
        let mut model = Model::new(api, 4, &vms);
        let host = &mut model.host;
        host.vms[0].owed = 100 + owed;
        host.cpus.iter_mut().for_each(|cpu| cpu.owner = NONE);
        for (v, &held) in held.iter().enumerate() {
            host.vcpus[v].held_back = held.into();
        }
        host.account(api, 1000);
        let all = held.iter().all(|&held| held);
        assert_eq!(host.vms[0].owed, if all { (100 + owed) / 2 } else { 100 + owed });
        assert_eq!(host.vms[0].wanting as usize, held.iter().filter(|&&held| !held).count());
        assert_eq!(host.turn(api), !all);
        let own = if high { 0 } else { LOW };
        for (v, &held) in held.iter().enumerate() {
            assert_eq!(host.cpus[v].owner == own, !held && !all, "pCPU {v}");
        }
    });
}
