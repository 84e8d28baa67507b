// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks built to count what waiting is like, under threads that preempt one another.

use unspin_bench_locks::bench::{count, Config, COUNTED};
use unspin_bench_locks::counts::table;

const CONFIG: Config = Config {
    threads: 4,
    cpus: 1,
    critical_iterations: 100,
    outside_iterations: 100,
    warmup_ms: 0,
    window_ms: 60,
    waits: 0,
    locks: 1,
    gap_us: 0,
    places: 0,
    busy: 0,
    realtime: 0,
};

#[test]
fn every_lock_counts_all_it_does() {
    for lock in COUNTED {
        // The computer may be too busy to let the threads run in a window.
        let c = (0..50).map(|_| count(lock, &CONFIG).unwrap()).find(|c| c.acquisitions > 0);
        let c = c.unwrap_or_else(|| panic!("{}: nothing done in 50 windows", lock.name));
        assert_eq!(c.waits.iter().sum::<u64>(), c.acquisitions, "{}", lock.name);
        assert_eq!(c.violations.iter().sum::<u64>(), c.acquisitions, "{}", lock.name);
        assert_eq!(c.by_share.iter().sum::<u64>(), c.returned, "{}", lock.name);
    }
}

#[test]
fn a_table_has_every_level() {
    let text = table(1, &Config { window_ms: 5, ..CONFIG }, |name| name == "tas").unwrap();
    assert_eq!(text.lines().count(), 5, "{text}");
}

#[test]
fn more_threads_than_it_can_count_are_refused() {
    assert!(count(&COUNTED[0], &Config { threads: 65, ..CONFIG }).is_err());
}
