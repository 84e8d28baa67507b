// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks built to count what waiting is like, under threads that preempt one another.

use unspin_bench_locks::bench::{count, Config, Counts, COUNTED};
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

fn counted(lock: &str) -> Counts {
    let lock = COUNTED.iter().find(|l| l.name == lock).unwrap();
    count(lock, &CONFIG).unwrap()
}

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

/// On one CPU a waiter that spins is alone: all others are without it, and are passed by or waited for.
/// Some lose their CPU between asking and drawing a number, or for less than 20 us: hence the shares.
#[test]
fn order_is_the_locks() {
    let c = counted("ticket");
    assert!(
        c.overtakes_back * 20 <= c.acquisitions.max(20),
        "a ticket lock keeps its order: {c:?}"
    );
    let c = (0..20)
        .map(|_| counted("preemptable"))
        .find(|c| c.stalls_free > 0 && c.overtakes_off > 10 * c.overtakes_running);
    c.expect("in 20 windows nobody was passed by while it had no CPU, and n * tau was no stall");
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
