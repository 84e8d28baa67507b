// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads as a filter of the kernel's trace events.

/// Limit of ranges in a filter: with 51 characters each it fits into a page, the limit of a
/// trigger.
const RANGES_MAX: usize = 64;

/// Ranges of thread ids, each with its last id, that contain all of `threads`. If there are more
/// than [`RANGES_MAX`], the smallest gaps are closed, so that other threads may be in them.
pub fn ranges(threads: &[i32]) -> Vec<(i32, i32)> {
    let mut sorted = threads.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let gap = |pair: &[i32]| i64::from(pair[1]) - i64::from(pair[0]);
    let mut gaps: Vec<i64> = sorted.windows(2).map(gap).filter(|&gap| gap > 1).collect();
    gaps.sort_unstable_by_key(|&gap| std::cmp::Reverse(gap));
    // Only larger gaps remain.
    let closed = gaps.get(RANGES_MAX - 1).copied().unwrap_or(1);
    let mut ranges: Vec<(i32, i32)> = Vec::new();
    for thread in sorted {
        match ranges.last_mut() {
            Some(last) if i64::from(thread) - i64::from(last.1) <= closed => last.1 = thread,
            _ => ranges.push((thread, thread)),
        }
    }
    ranges
}

/// An expression that matches the events of these threads.
pub fn filter(threads: &[i32]) -> String {
    let one = |&(first, last): &(i32, i32)| match first == last {
        true => format!("common_pid=={first}"),
        false => format!("(common_pid>={first}&&common_pid<={last})"),
    };
    ranges(threads).iter().map(one).collect::<Vec<_>>().join("||")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_are_one_range() {
        assert_eq!(filter(&[7]), "common_pid==7");
        let several = filter(&[12, 10, 11, 11, 40]);
        assert_eq!(several, "(common_pid>=10&&common_pid<=12)||common_pid==40");
    }

    proptest! {
        #[test]
        fn every_thread_is_in_a_range(threads in prop::collection::vec(1..i32::MAX, 1..300)) {
            let ranges = ranges(&threads);
            prop_assert!(ranges.len() <= RANGES_MAX);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
            for thread in &threads {
                prop_assert!(ranges.iter().any(|&(first, last)| (first..=last).contains(thread)));
            }
            for (first, last) in &ranges {
                prop_assert!(threads.contains(first) && threads.contains(last));
            }
            prop_assert!(filter(&threads).len() < 3500, "{}", filter(&threads).len());
        }

        #[test]
        fn few_threads_let_no_other_in(threads in prop::collection::vec(1..1000i32, 1..64)) {
            let all: Vec<i32> = ranges(&threads).iter().flat_map(|&(a, b)| a..=b).collect();
            prop_assert!(all.iter().all(|thread| threads.contains(thread)));
        }
    }
}
