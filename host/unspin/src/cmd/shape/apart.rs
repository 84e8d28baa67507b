// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU of each vCPU, chosen so that the vCPUs with the largest needs are on different CPUs. Pure
//! functions: nothing is read or written here.
//!
//! Shan, "High Performance Cloud Computing on Multicore Computers", dissertation, New Jersey Institute of
//! Technology, section 5.4.3. The input is [`Lasting`].

use std::collections::BTreeSet;
use unspin_shape::asym::{self, Core, Params, Vcpu};
use unspin_shape::lasting::Lasting;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mover {
    pub cpu: u32,
    need: Lasting,
    latency_us: u32,
    /// [`super::decide::Decision::conflicts`] of the last period.
    conflicts: u64,
}

impl Mover {
    pub fn new(cpu: u32) -> Mover {
        Mover { cpu, need: Lasting::default(), latency_us: u32::MAX, conflicts: 0 }
    }

    /// The end of a period: its need, its latency, and its conflicts.
    pub fn period(&mut self, need: Lasting, latency_us: u32, conflicts: u64) {
        (self.need, self.latency_us, self.conflicts) = (need, latency_us, conflicts);
    }
}

#[derive(Debug)]
pub struct Movable<'a> {
    /// CPUs that each of its vCPUs may use.
    pub cpus: &'a BTreeSet<u32>,
    pub vcpus: &'a mut [Mover],
}

/// CPUs for siblings that are now on these: different CPUs as far as possible, within the present node.
pub fn laid_out(now: &[u32], cpus: &BTreeSet<u32>, nodes: &[BTreeSet<u32>]) -> Vec<u32> {
    let mut places: Vec<u32> = Vec::new();
    for cpu in now {
        let node = nodes.iter().find(|node| node.contains(cpu));
        let near = |other: &u32| node.is_none_or(|node| node.contains(other));
        let there = cpus.iter().filter(|other| near(other));
        let siblings = |other: u32| places.iter().filter(|place| **place == other).count();
        let best = there.min_by_key(|other| (siblings(**other), *other != cpu, **other));
        let best = best.or(cpus.first()).copied().unwrap_or(*cpu);
        places.push(best);
    }
    places
}

/// Moves vCPUs from the busiest CPU of each node to other CPUs, or exchanges two vCPUs. `nodes` are
/// sets of CPUs; vCPUs do not move between them.
pub fn resolve(vms: &mut [Movable], nodes: &[BTreeSet<u32>], params: &Params) {
    let of_vm = |vm: &Movable| {
        let within = nodes.iter().map(|node| node.intersection(vm.cpus).copied().collect());
        within.collect::<Vec<BTreeSet<u32>>>()
    };
    let sets: BTreeSet<BTreeSet<u32>> = vms.iter().flat_map(of_vm).collect();
    for cpus in sets.iter().filter(|cpus| cpus.len() > 1) {
        resolve_among(vms, cpus, params);
    }
}

/// Considers only vCPUs that are on these CPUs and may run on each of them.
fn resolve_among(vms: &mut [Movable], cpus: &BTreeSet<u32>, params: &Params) {
    let cpus: Vec<u32> = cpus.iter().copied().collect();
    let mut cores = vec![Core::default(); cpus.len()];
    let (mut vcpus, mut whose) = (Vec::new(), Vec::new());
    for (number, vm) in vms.iter().enumerate() {
        if !cpus.iter().all(|cpu| vm.cpus.contains(cpu)) {
            continue;
        }
        for (index, mover) in vm.vcpus.iter().enumerate() {
            let Ok(core) = cpus.binary_search(&mover.cpu) else { continue };
            let mut vcpu = Vcpu::new(params, core as u32);
            vcpu.allocated_ns = mover.need.ns() as u64;
            vcpu.latency_us = mover.latency_us;
            vcpu.vm = number as u16;
            let is_urgent = mover.latency_us <= params.urgent_us;
            cores[core].conflicts += if is_urgent { mover.conflicts } else { 0 };
            vcpus.push(vcpu);
            whose.push((number, index));
        }
    }
    asym::resolve_time(&mut vcpus, &mut cores, params);
    asym::resolve_urgency(&mut vcpus, &cores, params);
    for ((number, index), vcpu) in whose.into_iter().zip(&vcpus) {
        vms[number].vcpus[index].cpu = cpus[vcpu.core as usize];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(cpus: impl IntoIterator<Item = u32>) -> BTreeSet<u32> {
        cpus.into_iter().collect()
    }

    fn need(part_ms: u64) -> Lasting {
        let mut need = Lasting::default();
        need.period(part_ms * 1_000_000);
        need
    }

    fn mover(cpu: u32, part_ms: u64) -> Mover {
        let mut mover = Mover::new(cpu);
        mover.period(need(part_ms), 4_000, 0);
        mover
    }

    #[test]
    fn busy_vcpus_that_share_a_cpu_are_parted() {
        let cpus = set(0..2);
        let mut vms: Vec<Vec<Mover>> = (0..2).map(|_| vec![mover(0, 60), mover(1, 10)]).collect();
        let [first, second] = &mut vms[..] else { unreachable!() };
        let mut all =
            [Movable { cpus: &cpus, vcpus: first }, Movable { cpus: &cpus, vcpus: second }];
        resolve(&mut all, &[set(0..2)], &Params::default());
        let places: Vec<Vec<u32>> =
            vms.iter().map(|vm| vm.iter().map(|v| v.cpu).collect()).collect();
        assert!(
            places[0] != places[1] && places[0].contains(&0) && places[0].contains(&1),
            "{places:?}"
        );
    }

    #[test]
    fn a_need_of_one_period_moves_nobody_yet() {
        let mut mover = mover(0, 20);
        let mut need = mover.need;
        need.period(40_000_000);
        mover.period(need, 4_000, 2);
        assert_eq!((mover.need.ns(), mover.conflicts), (25e6, 2));
    }

    #[test]
    fn siblings_are_laid_out_apart_where_they_are() {
        let nodes = [set(0..2), set(2..4)];
        assert_eq!(laid_out(&[0, 0, 3, 3], &set(0..4), &nodes), [0, 1, 3, 2]);
        assert_eq!(laid_out(&[1, 1, 1], &set(0..4), &nodes), [1, 0, 1], "no other node");
        assert_eq!(laid_out(&[7], &set(2..4), &nodes), [2], "where it may not be");
    }

    proptest! {
        /// For any needs, each vCPU stays within its CPUs and its node, and no CPU has more siblings than
        /// the fullest CPU had before.
        #[test]
        fn vcpus_stay_where_they_may_be(
            vms in prop::collection::vec(
                (0..3u32, prop::collection::vec((0..8u32, 0..80u64, 250..16_000u32, 0..40u64), 1..9)), 1..6),
        ) {
            let nodes = [set(0..4), set(4..8)];
            let allowed = [set(0..8), set(0..4), set(2..6)];
            let mut movers: Vec<Vec<Mover>> = Vec::new();
            for (which, vcpus) in &vms {
                let cpus: Vec<u32> = allowed[*which as usize].iter().copied().collect();
                movers.push(vcpus.iter().map(|(cpu, part_ms, latency_us, conflicts)| {
                    let mut mover = Mover::new(cpus[*cpu as usize % cpus.len()]);
                    mover.period(need(*part_ms), *latency_us, *conflicts);
                    mover
                }).collect());
            }
            let before = movers.clone();
            let together = |vm: &[Mover]| (0..8).map(|cpu| vm.iter().filter(|v| v.cpu == cpu).count()).max();
            let mut all: Vec<Movable> = movers.iter_mut().zip(&vms)
                .map(|(vcpus, (which, _))| Movable { cpus: &allowed[*which as usize], vcpus })
                .collect();
            for _ in 0..4 {
                resolve(&mut all, &nodes, &Params::default());
            }
            for ((are, were), (which, _)) in movers.iter().zip(&before).zip(&vms) {
                prop_assert!(together(are) <= together(were));
                for (is, was) in are.iter().zip(were) {
                    prop_assert!(allowed[*which as usize].contains(&is.cpu));
                    prop_assert_eq!(is.cpu / 4, was.cpu / 4);
                }
            }
        }
    }
}
