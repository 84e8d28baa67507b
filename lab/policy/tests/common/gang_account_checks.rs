// SPDX-License-Identifier: MIT OR Apache-2.0
//! What VMs are owed after a turn (policy/gang.h): parts of pinned vCPUs, of pools and of the group.

use super::gang_checks::{high, hosts, Host, LOW};
use super::{any_u64, property, Api};
use proptest::prelude::*;
use std::cmp::Reverse;
use unspin_policy::gang::{
    CpuSet, Vcpu, Vm, CLAMP_TURNS, MOST_EIGHTHS, POOLS_MAX, TIME_MAX, WEIGHT_MAX,
};

/// Part and charge of each vCPU: the header's words again, over numbers that cannot overflow.
struct Books<'b, 'a> {
    before: &'b Host<'a>,
    /// The VM of each vCPU.
    vm: Vec<usize>,
    /// Who takes part.
    all: Vec<usize>,
    part: Vec<i128>,
    charge: Vec<i128>,
}

impl<'b, 'a> Books<'b, 'a> {
    fn new(before: &'b Host<'a>, turn: u64) -> Self {
        let vm: Vec<usize> =
            (0..before.vms.len()).flat_map(|i| before.of(i).map(move |_| i)).collect();
        let takes_part = |v: &usize| {
            let vcpu = &before.vcpus[*v];
            before.is_there(*v) && vcpu.held_back == 0 && (vcpu.wants != 0 || vcpu.got > 0)
        };
        let none = vec![0; vm.len()];
        let all = (0..vm.len()).filter(takes_part).collect();
        let mut books = Books { before, vm, all, part: none.clone(), charge: none };
        for v in books.all.clone() {
            books.part[v] = books.by_weight(v, &books.all);
            books.charge[v] = books.charge_there(v);
        }
        for pool in books.pools() {
            books.fill(pool, turn);
        }
        books
    }

    fn got(&self, v: usize) -> i128 {
        self.before.vcpus[v].got.min(TIME_MAX).into()
    }

    fn weight(&self, v: usize) -> i128 {
        self.before.vcpus[v].weight.clamp(1, WEIGHT_MAX).into()
    }

    fn is_of_group(&self, v: usize) -> bool {
        let owner = self.before.cpus[self.before.vcpus[v].cpu as usize].owner;
        !self.before.vms[self.vm[v]].is_high() && owner >= LOW
    }

    /// Of what those of them got that are on its pCPU.
    fn by_weight(&self, v: usize, all: &[usize]) -> i128 {
        let beside = |o: &&usize| self.before.vcpus[**o].cpu == self.before.vcpus[v].cpu;
        let (mut time, mut weight) = (0, 0);
        for &o in all.iter().filter(beside) {
            time += self.got(o);
            weight += self.weight(o);
        }
        time * self.weight(v) / weight
    }

    fn charge_there(&self, v: usize) -> i128 {
        if !self.is_of_group(v) {
            return self.got(v);
        }
        let group = self.all.iter().copied().filter(|&o| self.is_of_group(o));
        self.by_weight(v, &group.collect::<Vec<_>>())
    }

    fn pools(&self) -> Vec<Vec<usize>> {
        let mut pools: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
        for &v in &self.all {
            let Some(allowed) = self.before.vcpus[v].allowed else { continue };
            let set: Vec<usize> =
                (0..self.before.cpus.len()).filter(|&cpu| allowed.has(cpu)).collect();
            if set.len() < 2 {
                continue;
            }
            match pools.iter().position(|pool| pool.0 == set) {
                Some(i) => pools[i].1.push(v),
                None if pools.len() == POOLS_MAX => pools[POOLS_MAX - 1].1.push(v),
                None => pools.push((set, vec![v])),
            }
        }
        pools.into_iter().map(|pool| pool.1).collect()
    }

    fn fill(&mut self, pool: Vec<usize>, turn: u64) {
        let turn = i128::from(turn.min(TIME_MAX));
        let time = pool.iter().map(|&v| self.part[v]).sum();
        let weights: Vec<i128> = pool.iter().map(|&v| self.weight(v)).collect();
        let parts = divided(time, &weights, turn / 8 * i128::from(MOST_EIGHTHS));
        pool.iter().zip(parts).for_each(|(&v, part)| self.part[v] = part);
        self.charge_group(pool, turn);
    }

    fn charge_group(&mut self, mut pool: Vec<usize>, turn: i128) {
        pool.retain(|&v| self.is_of_group(v));
        let time = pool.iter().map(|&v| self.charge[v]).sum();
        let weights: Vec<i128> = pool.iter().map(|&v| self.part[v].max(1)).collect();
        let charges = divided(time, &weights, turn);
        pool.iter().zip(charges).for_each(|(&v, charge)| self.charge[v] = charge);
    }

    fn owed_after(&self, turn: u64, vm: usize) -> i128 {
        let change = self.before.of(vm).map(|v| self.part[v] - self.charge[v]).sum();
        self.balance_after(turn, vm, self.before.vms[vm].owed, change)
    }

    fn behind_after(&self, turn: u64, vm: usize) -> i128 {
        let all = self.all.iter().copied().filter(|&v| self.vm[v] == vm);
        let change = all.map(|v| self.part[v] - self.got(v)).sum();
        self.balance_after(turn, vm, self.before.vms[vm].behind, change)
    }

    fn balance_after(&self, turn: u64, vm: usize, before: i64, change: i128) -> i128 {
        let balance = i128::from(before) + change;
        let wanting = self.before.wanting(vm).len() as i128;
        let bound = (i128::from(CLAMP_TURNS) * i128::from(turn) * wanting).min(TIME_MAX.into());
        if wanting > 0 {
            balance.clamp(-bound, bound)
        } else {
            balance / 2
        }
    }

    /// CPU time while it was HIGH, since its last turn, if that was not the one that ends.
    fn apart_after(&self, vm: usize) -> u64 {
        let row = &self.before.vms[vm];
        if !row.is_high() || row.last_turn == self.before.turn {
            return 0;
        }
        let parts = self.all.iter().filter(|&&v| self.vm[v] == vm);
        let got: u64 = parts.map(|&v| self.before.vcpus[v].got.min(TIME_MAX)).sum();
        row.apart.saturating_add(got).min(TIME_MAX)
    }
}

/// The heaviest have the most, as long as they would get more by weight; others what is left.
fn divided(mut time: i128, weights: &[i128], most: i128) -> Vec<i128> {
    let count = weights.len() as i128;
    let most = most.max((time + count - 1) / count.max(1));
    let mut weight: i128 = weights.iter().sum();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&i| Reverse(weights[i]));
    let mut shares = vec![0; weights.len()];
    let mut capped = true;
    for i in order {
        capped = capped && time * weights[i] > most * weight;
        if capped {
            shares[i] = most;
            time -= most;
            weight -= weights[i];
        } else {
            shares[i] = time * weights[i] / weight;
        }
    }
    shares
}

/// pCPUs owned by VMs, by the group, and by no VM.
fn some_owners(host: &mut Host, owners: u64) {
    let all: Vec<u32> = (0..host.vms.len() as u32).chain([LOW, u32::MAX]).collect();
    for (i, cpu) in host.cpus.iter_mut().enumerate() {
        cpu.owner = all[(owners >> (8 * i)) as usize % all.len()];
    }
}

/// When each VM had its last turn, and how much time it has had since.
fn some_last_turns(host: &mut Host, turn: u64, bits: u64) {
    let aparts = [0, 1, turn, turn.saturating_mul(3), TIME_MAX, u64::MAX];
    for (i, vm) in host.vms.iter_mut().enumerate() {
        let of = bits.rotate_right(5 * i as u32);
        vm.last_turn = host.turn.wrapping_sub((of & 1) as u32);
        vm.apart = aparts[(of >> 1) as usize % aparts.len()];
    }
}

/// Parts by weight of each pCPU and each pool, the group as one, what they got for those held back, the
/// clamp, and half for who sleeps.
pub fn gang_accounts_by_weight(api: &Api) {
    let turn = prop_oneof![any_u64(), 1..1000u64, (55..64u32).prop_map(|bit| 1 << bit)];
    property(3000, (hosts(), turn, any::<u64>()), |(mut before, turn, owners)| {
        some_owners(&mut before, owners);
        some_last_turns(&mut before, turn, owners);
        let mut after = before.clone();
        after.account(api, turn);
        let books = Books::new(&before, turn);
        for (i, vm) in after.vms.iter().enumerate() {
            assert_eq!(i128::from(vm.owed), books.owed_after(turn, i), "VM {i}");
            let wanting = before.wanting(i).len() as u32;
            let apart = books.apart_after(i);
            let apart_enough =
                u8::from(wanting > 0 && apart >= turn.min(TIME_MAX) * u64::from(wanting));
            assert_eq!(i128::from(vm.behind), books.behind_after(turn, i), "VM {i}");
            let Vm { owed, behind, .. } = *vm;
            assert_eq!(*vm, Vm { owed, behind, wanting, apart, apart_enough, ..before.vms[i] });
        }
        assert_eq!((after.owners(), after.turn), (before.owners(), before.turn));
        for (vcpu, was) in after.vcpus.iter().zip(&before.vcpus) {
            assert_eq!(Vcpu { pool: was.pool, ..*vcpu }, *was);
        }
    });
}

/// Turns only move time: the sum of all debts stays the same, apart from rounding.
pub fn gang_conserves_time(api: &Api) {
    property(3000, (hosts(), any::<u64>(), 1..8u64), |(mut host, owners, part)| {
        some_owners(&mut host, owners);
        for vcpu in &mut host.vcpus {
            (vcpu.wants, vcpu.got) = (1, vcpu.got % (1 << 30));
        }
        for vm in &mut host.vms {
            vm.owed %= 1000;
        }
        let sum = |host: &Host| {
            let awake = (0..host.vms.len()).filter(|&i| !host.wanting(i).is_empty());
            awake.map(|i| host.vms[i].owed).sum::<i64>()
        };
        let before = sum(&host);
        let longest = host.vcpus.iter().map(|vcpu| vcpu.got).max().unwrap_or(0);
        let turn = longest * part / 4 + 1000;
        host.account(api, turn);
        let is_clamped =
            |vm: &Vm| vm.owed.unsigned_abs() == CLAMP_TURNS * turn * u64::from(vm.wanting);
        if host.vms.iter().any(|vm| vm.wanting > 0 && is_clamped(vm)) {
            return;
        }
        // A part is rounded on its pCPU and in its pool, and so is the charge of the group.
        let (lost, vcpus) = (before - sum(&host), host.vcpus.len() as i64);
        assert!((-2 * vcpus..=2 * vcpus).contains(&lost), "{lost} of {before}");
    });
}

/// VMs of one vCPU each, which is what their parts are seen by.
fn singles<'a>(set: &'a CpuSet, cpus: usize, all: &[(u32, u64)]) -> Host<'a> {
    let single = |(i, &(weight, got)): (usize, &(u32, u64))| {
        let vcpu =
            Vcpu { got, wants: 1, allowed: Some(set), ..Vcpu::new((i % cpus) as u32, weight) };
        (high(), vec![vcpu])
    };
    Host::new(cpus, &all.iter().enumerate().map(single).collect::<Vec<_>>())
}

/// In a pool each has its part by weight, up to most of the turn; all of them have what all got.
pub fn gang_pools_are_filled(api: &Api) {
    const TURN: u64 = 1_000_000;
    let weights = prop::collection::vec(1..=WEIGHT_MAX, 1..8);
    let all = prop::collection::vec((any::<prop::sample::Index>(), 0..=TURN), 1..30);
    property(3000, (1..9usize, weights, all), |(cpus, weights, all)| {
        let all: Vec<(u32, u64)> =
            all.into_iter().map(|(index, got)| (*index.get(&weights), got)).collect();
        let set: CpuSet = (0..cpus.max(2)).collect();
        let mut host = singles(&set, cpus.max(2), &all);
        host.account(api, TURN);
        let part = |i: usize| host.vms[i].owed + all[i].1 as i64;
        let time: u64 = all.iter().map(|vcpu| vcpu.1).sum();
        let count = all.len() as i64;
        let most = (TURN * MOST_EIGHTHS / 8).max(time.div_ceil(count as u64)) as i64;
        let parts: i64 = (0..all.len()).map(part).sum();
        assert!((time as i64 - 2 * count..=time as i64).contains(&parts), "{parts} of {time}");
        for i in 0..all.len() {
            assert!((0..=most).contains(&part(i)), "{} of {most}", part(i));
            for k in 0..all.len() {
                assert!(all[i].0 < all[k].0 || part(i) >= part(k), "{i} is as heavy as {k}");
                // Both are rounded down, and divide the same otherwise.
                let slack = i64::from(all[i].0.max(all[k].0));
                let off = part(i) * i64::from(all[k].0) - part(k) * i64::from(all[i].0);
                assert!(part(i).max(part(k)) >= most - 1 || off.abs() <= slack, "by weight");
            }
        }
    });
}

/// As in a pool, but of the group: what all had is divided by their parts, and none counts as having had more
/// than the turn, or than the mean if that is longer.
pub fn gang_group_is_charged_up_to_a_turn(api: &Api) {
    const TURN: u64 = 1_000_000;
    let weights = prop::collection::vec(1..=WEIGHT_MAX, 1..8);
    let got = prop_oneof![0..=TURN, Just(TURN), 0..=2 * TURN];
    let all = prop::collection::vec((any::<prop::sample::Index>(), got), 1..30);
    property(3000, (1..9usize, weights, all), |(cpus, weights, all)| {
        let all: Vec<(u32, u64)> =
            all.into_iter().map(|(index, got)| (*index.get(&weights), got)).collect();
        let set: CpuSet = (0..cpus.max(2)).collect();
        let mut host = singles(&set, cpus.max(2), &all);
        // Where others got less than their parts, the group got more.
        host.vms.iter_mut().step_by(2).for_each(|vm| vm.high = 0);
        host.cpus.iter_mut().for_each(|cpu| cpu.owner = LOW);
        let before = host.clone();
        host.account(api, TURN);
        let books = Books::new(&before, TURN);
        let time: u64 = all.iter().step_by(2).map(|vcpu| vcpu.1).sum();
        let most = TURN.max(time.div_ceil(all.len().div_ceil(2) as u64));
        for (i, vm) in host.vms.iter().enumerate() {
            assert_eq!(i128::from(vm.owed), books.owed_after(TURN, i), "VM {i}");
            let bound = if vm.high == 0 { most } else { all[i].1 };
            assert!((0..=i128::from(bound)).contains(&books.charge[i]), "{}", books.charge[i]);
        }
    });
}

/// A vCPU that may run on one pCPU only is pinned, however its set is written; sets contain only
/// pCPUs that exist.
pub fn gang_pools_worked_example(api: &Api) {
    let set = |cpus: &[usize]| -> CpuSet { cpus.iter().copied().collect() };
    let owed = |cpus: usize, sets: [Option<&CpuSet>; 3], at: [u32; 3]| {
        let got = [600, 0, 0];
        let vm = |i: usize| {
            let vcpu = Vcpu { got: got[i], wants: 1, allowed: sets[i], ..Vcpu::new(at[i], 1) };
            (high(), vec![vcpu])
        };
        let mut host = Host::new(cpus, &[vm(0), vm(1), vm(2)]);
        host.account(api, 600);
        [0, 1, 2].map(|i| host.vms[i].owed)
    };
    let apart = [0, 0, 1];
    let pinned = [-300, 300, 0];
    let pooled = [-400, 200, 200];
    let (two, one, beyond) = (set(&[0, 1]), set(&[0]), set(&[1, 200]));
    assert_eq!(owed(2, [None; 3], apart), pinned);
    assert_eq!(owed(2, [Some(&two); 3], apart), pooled);
    assert_eq!(owed(2, [Some(&one), Some(&one), Some(&beyond)], apart), pinned);
    // Sets that are the same as far as there are pCPUs, at any place.
    assert_eq!(
        owed(2, [Some(&two), Some(&set(&[0, 1, 2])), Some(&set(&[0, 1, 90]))], apart),
        pooled
    );
    // A pool for each set: the first two divide their parts of pCPU 0.
    assert_eq!(owed(3, [Some(&two), Some(&two), Some(&set(&[1, 2]))], apart), pinned);
    // A pCPU of each word of 64.
    let far = set(&[1, 65]);
    assert_eq!(owed(130, [Some(&far); 3], [65, 65, 1]), pooled);
    assert_eq!(owed(130, [Some(&far), Some(&far), Some(&beyond)], [65, 65, 1]), pinned);
    let last = set(&[64, 129]);
    assert_eq!(owed(130, [Some(&last); 3], [129, 129, 64]), pooled);
    // On as many pCPUs as there are in a word none is left out.
    let top = set(&[0, 63]);
    assert_eq!(owed(64, [Some(&top); 3], [63, 63, 0]), pooled);
}

/// Each set has a pool, the eighth and all that come later have one together.
pub fn gang_pools_are_bounded(api: &Api) {
    let sets: Vec<CpuSet> = (0..9).map(|cpu| [cpu, 9].into_iter().collect()).collect();
    let vm = |(cpu, set)| {
        let got = if cpu == 7 { 600 } else { 0 };
        (high(), vec![Vcpu { got, wants: 1, allowed: Some(set), ..Vcpu::new(cpu, 1) }])
    };
    let mut host = Host::new(10, &(0..).zip(&sets).map(vm).collect::<Vec<_>>());
    host.account(api, 600);
    let owed: Vec<i64> = host.vms.iter().map(|vm| vm.owed).collect();
    assert_eq!(owed, [0, 0, 0, 0, 0, 0, 0, -300, 300]);
}
