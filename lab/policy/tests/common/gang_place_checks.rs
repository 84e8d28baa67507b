// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where vCPUs of a VM that has a turn should run (policy/gang.h): whole cores before second threads,
//! one cache and one node before two.

use super::gang_checks::{high, wanting_on, Host};
use super::gang_owner_checks::set_topology;
use super::{property, Api};
use proptest::prelude::*;
use std::collections::BTreeSet;
use unspin_policy::gang::{CpuSet, Vcpu, Vm};

/// Threads per core, cores per cache and caches per node.
type Sizes = (usize, usize, usize);

/// A VM on these pCPUs that may run anywhere and comes first, and a rival on the last.
fn host<'a>(cpus: usize, sizes: Sizes, at: &[u32], everywhere: &'a CpuSet) -> Host<'a> {
    let anywhere = |vcpu: Vcpu<'a>| -> Vcpu<'a> { Vcpu { allowed: Some(everywhere), ..vcpu } };
    let vcpus = wanting_on(at).into_iter().map(anywhere).collect();
    let rival = (Vm { owed: -1, ..Vm::default() }, wanting_on(&[cpus as u32 - 1]));
    let mut host = Host::new(cpus, &[(high(), vcpus), rival]);
    set_topology(&mut host.cpus, Some(sizes));
    for vm in 0..2 {
        host.vms[vm].wanting = host.wanting(vm).len() as u32;
    }
    host
}

fn targets(host: &Host, vm: usize) -> Vec<Option<usize>> {
    host.of(vm).map(|v| host.vcpus[v].target()).collect()
}

fn placed(api: &Api, mut host: Host) -> Vec<usize> {
    assert!(host.turn(api));
    targets(&host, 0).into_iter().map(|target| target.expect("all have one")).collect()
}

/// Two threads per core, two cores per cache, two caches per node: by hand.
pub fn gang_places_worked_example(api: &Api) {
    let everywhere: CpuSet = (0..16).collect();
    let at = |at: &[u32]| placed(api, host(16, (2, 2, 2), at, &everywhere));
    // Whole cores, then second threads, of the cache; then of the node; then any.
    assert_eq!(at(&[5, 5]), [5, 6]);
    assert_eq!(at(&[5, 5, 5, 5]), [5, 6, 4, 7]);
    assert_eq!(at(&[5, 5, 5, 5, 5]), [5, 6, 4, 7, 0]);
    assert_eq!(at(&[9, 9, 9, 9, 9, 9]), [9, 10, 8, 11, 12, 14]);
    let nine: Vec<usize> = at(&[9; 9]);
    assert_eq!(nine, [9, 10, 8, 11, 12, 14, 13, 15, 0]);
    // A vCPU that is alone stays, and the others come to where most of them are.
    assert_eq!(at(&[0, 4, 4]), [0, 4, 2]);
    assert_eq!(at(&[0, 4, 6, 6]), [0, 4, 6, 5]);
    assert_eq!(at(&[4, 6, 0, 6]), [4, 6, 0, 5]);
    // A second thread is left for a whole core of the cache, and for nothing else.
    assert_eq!(at(&[1, 0]), [2, 0]);
    assert_eq!(at(&[1, 0, 4, 6, 5]), [2, 0, 4, 6, 5]);
    assert_eq!(at(&[0, 3, 2, 1]), [0, 3, 2, 1]);
    // No vCPU is alone, and the cache has no room: they go to one with room, of the same node
    // first.
    let beside = |others: &[u32], at: &[u32]| {
        let mut host = host(16, (2, 2, 2), at, &everywhere);
        others.iter().for_each(|&cpu| host.cpus[cpu as usize].usable = 0);
        placed(api, host)
    };
    assert_eq!(beside(&[5], &[4, 4, 4]), [4, 6, 7]);
    assert_eq!(beside(&[1], &[9; 9]), [9, 10, 8, 11, 12, 14, 13, 15, 2]);
    assert_eq!(beside(&[1], &[5; 5]), [5, 6, 4, 7, 2]);
    assert_eq!(beside(&[0, 2], &[9; 9]), [9, 10, 8, 11, 12, 14, 13, 15, 4]);
    assert_eq!(beside(&[5, 6], &[4, 4, 4]), [0, 2, 1]);
    assert_eq!(beside(&[0, 1, 5, 6], &[4, 4, 4]), [8, 10, 9]);
    assert_eq!(beside(&[13, 14], &[12, 12, 12]), [8, 10, 9]);
    assert_eq!(beside(&[5, 6], &[4, 4, 7]), [4, 0, 7], "one is alone");
    assert_eq!(beside(&[0, 5], &[4, 4, 4, 4]), [8, 10, 9, 11], "one cache before one node");
    assert_eq!(beside(&[0, 1, 5], &[4, 4, 4, 4, 4]), [4, 6, 7, 2, 3], "one node of two");
    assert_eq!(beside(&[0, 1, 2, 5], &[4, 4, 4, 4, 4]), [8, 10, 9, 11, 12], "a node with room");
    // It may not run on the whole core: it stays, and goes to no other second thread or cache.
    for cpus in [[0, 1, 3], [0, 1, 8]] {
        let allowed: CpuSet = cpus.into_iter().collect();
        let held = host(16, (2, 2, 2), &[0, 1], &allowed);
        assert_eq!(placed(api, held), if cpus[2] == 3 { [3, 1] } else { [0, 1] });
    }
    let allowed: CpuSet = (0..4).collect();
    assert_eq!(placed(api, host(12, (2, 3, 2), &[0, 1, 2], &allowed)), [0, 1, 2]);
    // It may not run where there is room.
    let few: CpuSet = (0..8).collect();
    let mut held = host(16, (2, 2, 2), &[4, 4, 4], &few);
    [0, 1, 5, 6].iter().for_each(|&cpu| held.cpus[cpu].usable = 0);
    assert_eq!(placed(api, held), [4, 7, 2]);
}

/// vCPUs of LOW VMs that share a pCPU are spread nearby; vCPUs that sleep have pCPUs near their VM.
pub fn gang_spreads_worked_example(api: &Api) {
    let everywhere: CpuSet = (0..8).collect();
    let anywhere = |vcpus: Vec<Vcpu<'static>>| -> Vec<Vcpu> {
        vcpus.into_iter().map(|vcpu| Vcpu { allowed: Some(&everywhere), ..vcpu }).collect()
    };
    let start = |vms: &[(Vm, Vec<Vcpu<'_>>)], wake: &dyn Fn(&mut Host)| {
        let mut host = Host::new(8, vms);
        set_topology(&mut host.cpus, Some((1, 4, 1)));
        wake(&mut host);
        (0..host.vms.len()).for_each(|vm| host.vms[vm].wanting = host.wanting(vm).len() as u32);
        assert!(host.turn(api));
        (0..host.vms.len()).map(|vm| targets(&host, vm)).collect::<Vec<_>>()
    };
    let vms = |owed| {
        let low = Vm { owed, ..Vm::default() };
        [(low, anywhere(wanting_on(&[6, 6, 6]))), (high(), anywhere(wanting_on(&[0, 1])))]
    };
    let all = |cpus: &[usize]| cpus.iter().map(|&cpu| Some(cpu)).collect::<Vec<_>>();
    assert_eq!(start(&vms(1), &|_| ()), [all(&[6, 4, 5]), all(&[0, 1])]);
    assert_eq!(start(&vms(-1), &|_| ()), [all(&[6, 4, 5]), all(&[0, 1])]);
    // The gang came first to where the others are: they go where is room.
    let met = [vms(-1)[0].clone(), (high(), wanting_on(&[6, 5]))];
    assert_eq!(start(&met, &|_| ()), [all(&[4, 7, 0]), all(&[6, 5])]);
    // One of the gang sleeps where the other is: it is expected nearby, after who wants to run.
    let sleeps = |host: &mut Host| host.vcpus[4].wants = 0;
    let mut near = vms(-1);
    near[1].1[1].cpu = 0;
    assert_eq!(start(&near, &sleeps), [all(&[6, 4, 5]), all(&[0, 1])]);
    near[1].1[1].held_back = 1;
    assert_eq!(start(&near, &sleeps), [all(&[6, 4, 5]), vec![Some(0), None]], "held back");
    near[1].1[1].held_back = 0;
    let full = [(vms(1)[0].0, anywhere(wanting_on(&[6; 7]))), near[1].clone()];
    let targets = start(&full, &|host| host.vcpus[8].wants = 0);
    assert_eq!(targets[1], [Some(3), None], "nothing is left");
}

/// A VM without pCPUs of others: pCPUs, sizes, and where its vCPUs are.
fn layouts() -> impl Strategy<Value = (usize, Sizes, Vec<u32>)> {
    let sizes = (1..3usize, 1..5usize, 1..4usize, 1..4usize);
    (sizes, 1..12usize, prop::collection::vec(any::<u32>(), 12), 1..12usize).prop_map(
        |((threads, cores, caches, nodes), count, at, spread)| {
            let cpus = (threads * cores * caches * nodes).max(2);
            let homes: Vec<u32> = at[..spread].iter().map(|cpu| cpu % cpus as u32).collect();
            let at = (0..count.min(cpus)).map(|i| homes[at[i] as usize % spread]).collect();
            (cpus, (threads, cores, caches), at)
        },
    )
}

/// How many different groups of that size pCPUs are in.
fn groups(cpus: &[usize], size: usize) -> usize {
    cpus.iter().map(|cpu| cpu / size).collect::<BTreeSet<_>>().len()
}

/// One cache, else one node, unless a vCPU that is alone prevents it; whole cores in it first.
pub fn gang_gathers(api: &Api) {
    property(3000, layouts(), |(cpus, sizes, at)| {
        let everywhere: CpuSet = (0..cpus).collect();
        let own = placed(api, host(cpus, sizes, &at, &everywhere));
        let (threads, cores, caches) = sizes;
        let (cache, node) = (threads * cores, threads * cores * caches);
        assert_eq!(own.iter().collect::<BTreeSet<_>>().len(), at.len(), "one for each");
        let alone = |cpu: &u32| at.iter().filter(|&other| other == cpu).count() == 1;
        if !at.iter().any(alone) {
            assert!(at.len() > cache.min(cpus) || groups(&own, cache) == 1, "{own:?}: two caches");
            assert!(at.len() > node.min(cpus) || groups(&own, node) == 1, "{own:?}: two nodes");
        }
        for &cpu in &own {
            let siblings = own.iter().filter(|&other| other / threads == cpu / threads).count();
            let is_whole = |core: usize| own.iter().all(|other| other / threads != core);
            let of_cache = (cpu / cache * cores)..(cpu / cache + 1) * cores;
            let could = of_cache.clone().any(|core| (core + 1) * threads <= cpus && is_whole(core));
            assert!(siblings == 1 || !could, "{own:?}: {cpu} is a second thread");
        }
    });
}
