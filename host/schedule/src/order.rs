// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which order CPUs are given to vCPUs that run together: whole cores before second threads, and those of one
//! node and cache after each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use unspin_host::cpus;

/// The CPUs, the best first, each with the number of its place: CPUs of one number are whole cores of one
/// last-level cache, or second threads of one. What the kernel does not show counts as one cache, or one node.
pub fn order(system: &Path, cpus: &BTreeSet<u32>) -> Vec<(u32, u16)> {
    let nodes = cpus::nodes(system);
    let caches = cpus::by_last_level_cache(system, cpus).unwrap_or_default();
    let place = |cpu: u32| {
        let node = nodes.iter().find(|node| node.contains(&cpu)).and_then(BTreeSet::first);
        let cache = caches.iter().find(|(_, of)| of.contains(&cpu)).map(|(first, _)| *first);
        (cpus::thread_of_core(system, cpu), node.copied(), cache)
    };
    let mut places: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for cpu in cpus {
        places.entry(place(*cpu)).or_default().push(*cpu);
    }
    let each = places.into_values().zip(0..);
    each.flat_map(|(cpus, place)| cpus.into_iter().map(move |cpu| (cpu, place))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_cores_come_first_and_caches_are_apart() {
        let root = unspin_scratch::Scratch::new();
        let all = cpus::parse("0-7").unwrap();
        assert_eq!(
            order(&root, &all),
            Vec::from_iter((0..8).map(|cpu| (cpu, 0))),
            "nothing is known"
        );
        // Threads 0 and 4 are a core. Cores 0 and 1 share a cache and a node.
        for cpu in 0..8 {
            let core = cpu % 4;
            let siblings = format!("{core},{}", core + 4);
            root.write(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), siblings);
            let shared = ["0-1,4-5", "2-3,6-7"][core / 2];
            root.write(format!("cpu/cpu{cpu}/cache/index3/level"), "3\n");
            root.write(format!("cpu/cpu{cpu}/cache/index3/shared_cpu_list"), shared);
        }
        root.write("node/node0/cpulist", "2-3,6-7");
        root.write("node/node1/cpulist", "0-1,4-5");
        let wanted = [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3)];
        assert_eq!(order(&root, &all), wanted);
        let some = cpus::parse("1,5-7").unwrap();
        assert_eq!(order(&root, &some), [(1, 0), (5, 1), (6, 2), (7, 2)]);
    }
}
