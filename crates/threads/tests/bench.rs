// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bench under every lock and peer: it counts what was done, and catches a lock that is none.

use unspin_threads::bench::{run, subject, Config, Measured, Thread, BUCKETS, SUBJECTS};
use unspin_threads::locks::LOCKS;

const CONFIG: Config = Config {
    threads: 2,
    cpus: 1,
    critical_iterations: 20,
    outside_iterations: 20,
    warmup_ms: 5,
    window_ms: 20,
    waits: 1,
};

#[test]
fn every_lock_is_a_subject_and_runs() {
    for lock in LOCKS {
        assert!(!subject(lock.name).unwrap().peer, "{}", lock.name);
    }
    for s in SUBJECTS {
        // The computer may be too busy to let the threads run in a window.
        let m = (0..50)
            .map(|_| run(s, &CONFIG).unwrap_or_else(|error| panic!("{}: {error}", s.name)))
            .find(|m| m.throughput() > 0.0);
        let m = m.unwrap_or_else(|| panic!("{}: nothing done in 50 windows", s.name));
        assert!(m.window_ns >= 20_000_000, "{}: {}", s.name, m.window_ns);
        for t in &m.threads {
            assert_eq!(t.wait_hist.iter().sum::<u64>(), t.acquisitions, "{}", s.name);
            assert!(t.all >= t.acquisitions, "{}", s.name);
        }
    }
}

#[test]
fn a_bench_without_threads_is_refused() {
    let s = subject("tas").unwrap();
    assert!(run(s, &Config { threads: 0, ..CONFIG }).is_err());
    assert!(run(s, &Config { cpus: 0, ..CONFIG }).is_err());
    assert!(run(s, &Config { cpus: 1 << 20, threads: 1, ..CONFIG }).is_ok(), "CPU 0 exists");
}

fn thread(waits: &[(usize, u64)]) -> Thread {
    let mut t = Thread { all: 0, acquisitions: 0, wait_hist: [0; BUCKETS] };
    for &(bucket, count) in waits {
        t.wait_hist[bucket] += count;
        t.acquisitions += count;
    }
    t
}

#[test]
fn figures_are_of_all_threads() {
    let threads = vec![thread(&[(3, 98)]), thread(&[(3, 1), (10, 49), (20, 1)])];
    let m = Measured { window_ns: 500_000_000, threads };
    assert_eq!(m.throughput(), 298.0);
    assert_eq!(m.max_min(), 98.0 / 51.0);
    assert_eq!(m.wait_ticks(0.5), 1 << 4);
    assert_eq!(m.wait_ticks(0.99), 1 << 11);
    assert_eq!(m.wait_ticks(1.0), 1 << 21);
    let idle = Measured { window_ns: 1, threads: vec![thread(&[]), thread(&[(0, 1)])] };
    assert_eq!(idle.max_min(), f64::INFINITY);
    assert_eq!(Measured { window_ns: 1, threads: vec![] }.wait_ticks(0.5), 0);
}
