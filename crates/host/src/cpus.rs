// SPDX-License-Identifier: MIT OR Apache-2.0
//! Physical CPUs: lists of them, and what they share.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Reads the kernel's lists, such as `0-3,8`. `None` where it is none.
pub fn parse(text: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // More than any kernel has.
        if last < first || last >= 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The NUMA nodes that have some of these CPUs, below `/sys/devices/system`. None where the kernel names
/// none.
pub fn nodes(system: &Path, cpus: &BTreeSet<u32>) -> BTreeSet<u32> {
    let Ok(entries) = fs::read_dir(system.join("node")) else { return BTreeSet::new() };
    let number = |name: &str| name.strip_prefix("node")?.parse::<u32>().ok();
    let nodes = entries.flatten().filter_map(|entry| {
        let node = number(entry.file_name().to_str()?)?;
        let its = parse(&fs::read_to_string(entry.path().join("cpulist")).ok()?)?;
        its.iter().any(|cpu| cpus.contains(cpu)).then_some(node)
    });
    nodes.collect()
}

/// How many last-level caches serve these CPUs; `None` where the kernel does not say.
pub fn last_level_caches(system: &Path, cpus: &BTreeSet<u32>) -> Option<usize> {
    let of = |cpu: &u32| {
        let dir = system.join(format!("cpu/cpu{cpu}/cache"));
        let mut levels: Vec<(u32, String)> = fs::read_dir(dir)
            .ok()?
            .flatten()
            .filter_map(|entry| {
                let read = |name| fs::read_to_string(entry.path().join(name)).ok();
                Some((read("level")?.trim().parse().ok()?, read("shared_cpu_list")?))
            })
            .collect();
        levels.sort();
        levels.pop().map(|(_, shared)| shared)
    };
    let caches: Option<BTreeSet<String>> = cpus.iter().map(of).collect();
    caches.map(|caches| caches.len()).filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nodes_and_caches_are_those_of_the_cpus() {
        let root = std::env::temp_dir().join(format!("unspin-cpus-{}", std::process::id()));
        for (node, cpus) in [(0, "0-1"), (1, "2-3")] {
            let dir = root.join(format!("node/node{node}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("cpulist"), cpus).unwrap();
            for cpu in parse(cpus).unwrap() {
                for (index, level, shared) in [(0, 1, cpu.to_string()), (3, 3, cpus.into())] {
                    let dir = root.join(format!("cpu/cpu{cpu}/cache/index{index}"));
                    fs::create_dir_all(&dir).unwrap();
                    fs::write(dir.join("level"), format!("{level}\n")).unwrap();
                    fs::write(dir.join("shared_cpu_list"), shared).unwrap();
                }
            }
        }
        let of = |list: &str| {
            let cpus = parse(list).unwrap();
            (nodes(&root, &cpus).len(), last_level_caches(&root, &cpus))
        };
        assert_eq!(of("0-1"), (1, Some(1)));
        assert_eq!(of("1-2"), (2, Some(2)));
        assert_eq!(of("9"), (0, None));
        fs::remove_dir_all(&root).unwrap();
    }

    proptest! {
        #[test]
        fn a_list_is_its_cpus(cpus in prop::collection::btree_set(0..2000u32, 0..50)) {
            let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
            prop_assert_eq!(parse(&list.join(",")), Some(cpus));
        }

        #[test]
        fn a_range_has_all_between(first in 0..1000u32, more in 0..1000u32) {
            let all = (first..=first + more).collect();
            prop_assert_eq!(parse(&format!("{first}-{}\n", first + more)), Some(all));
        }

        #[test]
        fn no_text_makes_it_panic(text: String) {
            parse(&text);
        }
    }
}
