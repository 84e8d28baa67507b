// SPDX-License-Identifier: MIT OR Apache-2.0
//! Physical CPUs: lists of CPUs, and what CPUs share.

use crate::slice::result;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use unspin_text::read_kernel_text;

/// CPUs have numbers below this, on any kernel.
pub const NUMBERS: u32 = 1 << 16;

/// Reads a CPU list of the kernel, such as `0-3,8`. `None` if it is malformed.
pub fn parse(text: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if last < first || last >= NUMBERS {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The number of a CPU, which has digits only: no sign.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| !text.starts_with('+'))
}

/// Writes CPUs as the kernel does: `0-3,8`.
pub fn list(cpus: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let range = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// Those of the CPUs that are online; all of them if that is unknown.
pub fn usable(allowed: &BTreeSet<u32>, online: Option<&BTreeSet<u32>>) -> BTreeSet<u32> {
    online.map_or_else(|| allowed.clone(), |online| allowed & online)
}

/// Restricts a thread to these CPUs.
pub fn set_affinity(tid: u32, cpus: &BTreeSet<u32>) -> io::Result<()> {
    const BITS: u32 = u64::BITS;
    let mut mask = vec![0u64; (cpus.last().unwrap_or(&0) / BITS) as usize + 1];
    for cpu in cpus {
        mask[(cpu / BITS) as usize] |= 1 << (cpu % BITS);
    }
    let tid = libc::pid_t::try_from(tid).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: it reads as many bytes as the mask has.
    result(unsafe { libc::sched_setaffinity(tid, size_of_val(&mask[..]), mask.as_ptr().cast()) })
}

/// The CPUs of each NUMA node with CPUs, from `/sys/devices/system`. Empty if the kernel lists no nodes.
pub fn nodes(system: &Path) -> Vec<BTreeSet<u32>> {
    let Ok(entries) = fs::read_dir(system.join("node")) else { return Vec::new() };
    let number = |name: &str| name.strip_prefix("node")?.parse::<u32>().ok();
    let nodes = entries.flatten().filter_map(|entry| {
        number(entry.file_name().to_str()?)?;
        parse(&read_kernel_text(entry.path().join("cpulist")).ok()?)
    });
    nodes.filter(|cpus| !cpus.is_empty()).collect()
}

/// The number of last-level caches that serve these CPUs; `None` if the kernel does not show it.
pub fn last_level_caches(system: &Path, cpus: &BTreeSet<u32>) -> Option<usize> {
    by_last_level_cache(system, cpus).map(|caches| caches.len()).filter(|count| *count > 0)
}

/// Groups these CPUs by last-level cache: the first CPU of a cache, and those of `cpus` that it serves.
/// `None` if the kernel does not show it.
pub fn by_last_level_cache(
    system: &Path,
    cpus: &BTreeSet<u32>,
) -> Option<BTreeMap<u32, BTreeSet<u32>>> {
    let of = |cpu: u32| {
        let dir = system.join(format!("cpu/cpu{cpu}/cache"));
        let levels = fs::read_dir(dir).ok()?.flatten().filter_map(|entry| {
            let read = |name| read_kernel_text(entry.path().join(name)).ok();
            let level: u32 = read("level")?.trim().parse().ok()?;
            Some((level, parse(&read("shared_cpu_list")?)?))
        });
        levels.max().and_then(|(_, shared)| shared.first().copied())
    };
    let mut caches: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for cpu in cpus {
        caches.entry(of(*cpu)?).or_default().insert(*cpu);
    }
    Some(caches)
}

/// The index of a CPU among the threads of its core; 0 if the kernel does not show it.
pub fn thread_of_core(system: &Path, cpu: u32) -> usize {
    let path = system.join(format!("cpu/cpu{cpu}/topology/thread_siblings_list"));
    let siblings = read_kernel_text(path).ok().and_then(|text| parse(&text)).unwrap_or_default();
    siblings.iter().take_while(|sibling| **sibling < cpu).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nodes_and_caches_are_those_of_the_cpus() {
        let root = unspin_scratch::Scratch::new();
        for (node, cpus) in [(0, "0-1"), (1, "2-3")] {
            root.write(format!("node/node{node}/cpulist"), cpus);
            for cpu in parse(cpus).unwrap() {
                for (index, level, shared) in [(0, 1, cpu.to_string()), (3, 3, cpus.into())] {
                    let dir = format!("cpu/cpu{cpu}/cache/index{index}");
                    root.write(format!("{dir}/level"), format!("{level}\n"));
                    root.write(format!("{dir}/shared_cpu_list"), shared);
                }
            }
        }
        let of = |list: &str| last_level_caches(&root, &parse(list).unwrap());
        let lists: BTreeSet<String> = nodes(&root).iter().map(list).collect();
        assert_eq!(lists.into_iter().collect::<Vec<_>>(), ["0-1", "2-3"]);
        let caches = by_last_level_cache(&root, &parse("1-3").unwrap()).unwrap();
        let caches: Vec<(u32, String)> = caches.iter().map(|(c, cpus)| (*c, list(cpus))).collect();
        assert_eq!(caches, [(0, "1".into()), (2, "2-3".into())]);
        root.write("cpu/cpu3/topology/thread_siblings_list", "1,3\n");
        assert_eq!((thread_of_core(&root, 3), thread_of_core(&root, 1)), (1, 0));
        assert_eq!((of("0-1"), of("1-2"), of("9")), (Some(1), Some(2), None));
    }

    #[test]
    fn a_list_with_a_sign_is_malformed() {
        for text in ["+1", "0-+1", "+0-1", "-1", "1-"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("0-1"), Some([0, 1].into()));
    }

    proptest! {
        #[test]
        fn a_list_is_its_cpus(cpus in prop::collection::btree_set(0..2000u32, 0..50)) {
            let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
            prop_assert_eq!(parse(&list.join(",")), Some(cpus));
        }

        #[test]
        fn a_list_is_read_as_it_was_written(
            cpus in prop::collection::btree_set(0..200u32, 0..150),
        ) {
            prop_assert_eq!(parse(&list(&cpus)), Some(cpus));
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
