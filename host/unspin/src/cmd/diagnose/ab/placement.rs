// SPDX-License-Identifier: MIT OR Apache-2.0
//! A placement of vCPUs within one last-level cache: for each a CPU that it may use.

use std::collections::{BTreeMap, BTreeSet};

/// Finds a CPU for each vCPU, all of one cache. `allowed` has the CPUs that each vCPU may use, `caches`
/// the CPUs of each cache; CPUs with a lower `rank` are preferred. Of the caches with enough CPUs, takes
/// the one whose CPUs rank lowest. `None` if no cache has enough.
pub fn within_one_cache(
    caches: &BTreeMap<u32, BTreeSet<u32>>,
    allowed: &[BTreeSet<u32>],
    rank: impl Fn(u32) -> usize,
) -> Option<Vec<u32>> {
    let place = |cpus: &BTreeSet<u32>| {
        let mut cpus: Vec<u32> = cpus.iter().copied().collect();
        cpus.sort_by_key(|cpu| (rank(*cpu), *cpu));
        assign(&cpus, allowed)
    };
    let cost = |cpus: &Vec<u32>| cpus.iter().map(|cpu| rank(*cpu)).sum::<usize>();
    caches.values().filter_map(place).min_by_key(cost)
}

/// A CPU per vCPU, no CPU twice; prefers earlier CPUs.
fn assign(cpus: &[u32], allowed: &[BTreeSet<u32>]) -> Option<Vec<u32>> {
    let mut owner: BTreeMap<u32, usize> = BTreeMap::new();
    for vcpu in 0..allowed.len() {
        if !find(vcpu, cpus, allowed, &mut owner, &mut BTreeSet::new()) {
            return None;
        }
    }
    let mut placed = vec![0; allowed.len()];
    for (cpu, vcpu) in owner {
        placed[vcpu] = cpu;
    }
    Some(placed)
}

/// Finds a CPU for a vCPU; may move another vCPU from its CPU to a different one.
fn find(
    vcpu: usize,
    cpus: &[u32],
    allowed: &[BTreeSet<u32>],
    owner: &mut BTreeMap<u32, usize>,
    tried: &mut BTreeSet<u32>,
) -> bool {
    for cpu in cpus.iter().filter(|cpu| allowed[vcpu].contains(cpu)) {
        if !tried.insert(*cpu) {
            continue;
        }
        let is_free = match owner.get(cpu).copied() {
            None => true,
            Some(other) => find(other, cpus, allowed, owner, tried),
        };
        if is_free {
            owner.insert(*cpu, vcpu);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(cpus: &[u32]) -> BTreeSet<u32> {
        cpus.iter().copied().collect()
    }

    #[test]
    fn a_vcpu_makes_room_for_one_that_has_less_choice() {
        let caches = BTreeMap::from([(0, set(&[0, 1])), (4, set(&[4, 5, 6, 7]))]);
        let both = [set(&[0, 1, 4, 5]), set(&[0, 4])];
        assert_eq!(within_one_cache(&caches, &both, |_| 0), Some(vec![1, 0]));
        let three = [set(&[0, 1, 4, 5]), set(&[0, 4]), set(&[0, 1, 6])];
        assert_eq!(within_one_cache(&caches, &three, |_| 0), Some(vec![5, 4, 6]));
        assert_eq!(within_one_cache(&caches, &[set(&[0]), set(&[4])], |_| 0), None);
    }

    #[test]
    fn whole_cores_are_taken_before_second_threads() {
        let caches = BTreeMap::from([(0, set(&[0, 1, 2, 3]))]);
        let anywhere = vec![set(&[0, 1, 2, 3]); 2];
        let odd_are_second = |cpu: u32| (cpu % 2) as usize;
        assert_eq!(within_one_cache(&caches, &anywhere, odd_are_second), Some(vec![2, 0]));
    }

    proptest! {
        #[test]
        fn each_has_a_cpu_of_its_own_that_it_may_use(
            caches in prop::collection::vec(prop::collection::btree_set(0..16u32, 1..8), 1..4),
            allowed in prop::collection::vec(prop::collection::btree_set(0..16u32, 1..16), 1..6),
        ) {
            let caches: BTreeMap<u32, BTreeSet<u32>> = (0..).zip(caches).collect();
            if let Some(placed) = within_one_cache(&caches, &allowed, |cpu| cpu as usize % 2) {
                let distinct: BTreeSet<u32> = placed.iter().copied().collect();
                prop_assert_eq!(distinct.len(), allowed.len());
                prop_assert!(placed.iter().zip(&allowed).all(|(cpu, may)| may.contains(cpu)));
                prop_assert!(caches.values().any(|cache| distinct.is_subset(cache)));
            }
        }
    }
}
