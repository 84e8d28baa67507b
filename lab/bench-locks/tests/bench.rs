// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bench under every lock and peer: it counts the work, and it detects a lock that does not
//! exclude.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use unspin_bench_locks::bench::{
    bucket_end_ticks, run, subject, Config, Measured, Thread, Window, BUCKETS, SUBJECTS,
};
use unspin_bench_locks::campaign::{complete, measure, read, Sample, CODE};
use unspin_bench_locks::workload::{Setup, FAIR_RUNS, LEVELS, WORKLOADS};
use unspin_threads::locks::LOCKS;

const CONFIG: Config = Config {
    threads: 2,
    cpus: 1,
    critical_iterations: 20,
    outside_iterations: 20,
    warmup_ms: 5,
    window_ms: 20,
    waits: 1,
    locks: 1,
    gap_us: 0,
    places: 0,
    busy: 0,
    realtime: 0,
};

fn setup() -> Setup {
    Setup {
        cpus: 1,
        runs: 2,
        workload_runs: 1,
        window_ms: 1,
        fair_window_ms: 1,
        critical_iterations: 1,
        outside_iterations: 1,
        long_iterations: 1,
        realtime: false,
        code: CODE.to_string(),
    }
}

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
        assert!(m.window.ns >= 20_000_000, "{}: {}", s.name, m.window.ns);
        for t in &m.threads {
            let waits: u64 = t.wait_hist.iter().sum();
            assert_eq!(waits, t.acquisitions + t.unfinished, "{}", s.name);
            assert!(t.all >= t.acquisitions && t.unfinished <= 1, "{}", s.name);
        }
    }
}

#[test]
fn a_bench_without_threads_is_refused() {
    let s = subject("tas").unwrap();
    assert!(run(s, &Config { threads: 0, ..CONFIG }).is_err());
    assert!(run(s, &Config { locks: 0, ..CONFIG }).is_err());
    assert!(run(s, &Config { cpus: 1 << 20, threads: 1, ..CONFIG }).is_ok(), "CPU 0 exists");
}

/// A lock that is handed from waiter to waiter always has a waiter.
#[test]
fn waits_that_outlast_the_window_are_counted() {
    let s = subject("ticket").unwrap();
    let found = (0..50).any(|_| {
        let m = run(s, &Config { threads: 4, ..CONFIG }).unwrap();
        m.unfinished() > 0
    });
    assert!(found);
}

/// Buckets follow one another without gap or overlap, none wider than a sixteenth.
#[test]
fn buckets_are_narrow() {
    assert_eq!(bucket_end_ticks(0), 0);
    for bucket in 1..BUCKETS {
        let (start, end) = (bucket_end_ticks(bucket - 1) + 1, bucket_end_ticks(bucket));
        assert!(end >= start && (end - start) * 16 <= start, "{bucket}: {start}..={end}");
    }
}

fn thread(waits: &[(usize, u64)]) -> Thread {
    let mut t = Thread { all: 0, acquisitions: 0, unfinished: 0, wait_hist: [0; BUCKETS] };
    for &(bucket, count) in waits {
        t.wait_hist[bucket] += count;
        t.acquisitions += count;
    }
    t
}

#[test]
fn figures_are_of_all_threads() {
    let threads = vec![thread(&[(3, 98)]), thread(&[(3, 1), (100, 49), (200, 1)])];
    // Two ticks a ns.
    let m = Measured {
        window: Window { ns: 500_000_000, ticks: 1_000_000_000, cpu_ns: 149_000 },
        threads,
    };
    assert_eq!(m.throughput(), 298.0);
    assert_eq!(m.max_min(), 98.0 / 51.0);
    assert_eq!(m.cpu_s_per_million(), 1.0);
    assert_eq!(m.wait_ns(0.5), 1.5);
    assert_eq!(m.wait_ns(0.99), bucket_end_ticks(100) as f64 / 2.0);
    assert_eq!(m.wait_ns(1.0), bucket_end_ticks(200) as f64 / 2.0);
    let threads = vec![thread(&[]), thread(&[(0, 1)])];
    let idle = Measured { window: Window::default(), threads };
    assert_eq!(idle.max_min(), f64::INFINITY);
    let nobody = Measured { window: Window::default(), threads: vec![] };
    assert_eq!((nobody.wait_ns(0.5), nobody.wait_by_time_ns()), (0.0, 0.0));
}

#[test]
fn a_campaign_goes_on_where_it_was_stopped() {
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("campaign");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("samples.jsonl");
    let _ = std::fs::remove_file(&file);
    let setup = setup();
    let subjects = [subject("tas").unwrap(), subject("pthread_mutex").unwrap()];
    let now = Some(std::time::Instant::now());
    assert!(measure(&setup, &subjects, &file, now, |_, _, _| ()).unwrap().is_empty());
    let all = measure(&setup, &subjects[..1], &file, None, |_, _, _| ()).unwrap();
    let once = 2 * (1 + LEVELS.len()) + WORKLOADS.len() + FAIR_RUNS as usize;
    assert_eq!(all.len(), once, "2 runs of the levels, 1 of the workloads, and those for fairness");
    assert!(complete(&setup, &subjects[..1], &all) && !complete(&setup, &subjects, &all));
    // As a computer that lost its power leaves it.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() - 10]).unwrap();
    let mut made = 0;
    let all = measure(&setup, &subjects, &file, None, |_, _, _| made += 1).unwrap();
    assert_eq!((all.len(), made), (2 * once, once + 1));
    let keys = |samples: &[Sample]| {
        samples.iter().map(|s| (s.run, s.part, s.lock.clone())).collect::<Vec<_>>()
    };
    assert_eq!(keys(&read(&file, &setup).unwrap()), keys(&all));
    let other = Setup { code: "other".to_string(), ..setup };
    assert!(read(&file, &other).unwrap().is_empty(), "samples of other code");
}

/// Of 3 waits of 1 us and one of 9 us, a waiting thread is found in the long one 3 times in 4.
#[test]
fn waits_are_weighted_by_time() {
    let bucket = |ticks: u64| (0..BUCKETS).find(|&b| bucket_end_ticks(b) >= ticks).unwrap();
    let (short, long) = (bucket(1000), bucket(9000));
    let threads = vec![thread(&[(short, 3), (long, 1)])];
    let m = Measured { window: Window { ns: 1, ticks: 1, cpu_ns: 0 }, threads };
    assert!((6900.0..7600.0).contains(&m.wait_by_time_ns()), "{}", m.wait_by_time_ns());
}

/// Runs `lock` in a workload until a thread has done something.
/// Tests that run beside this one may have the only CPU for some seconds.
fn works(lock: &str, config: &Config) -> Measured {
    let s = subject(lock).unwrap();
    let mut tries = (0..1000).map(|_| run(s, config).unwrap_or_else(|e| panic!("{lock}: {e}")));
    tries.find(|m| m.throughput() > 0.0).unwrap_or_else(|| panic!("{lock}: nothing done"))
}

#[test]
fn every_workload_works_with_every_lock_that_takes_part() {
    for (_, part, subject) in setup().order(&SUBJECTS.iter().collect::<Vec<_>>()) {
        if WORKLOADS.contains(&part) {
            let whole = setup().config(part);
            let small = Config { threads: whole.threads.min(8), window_ms: 10, ..whole };
            let m = works(subject.name, &small);
            assert!(m.window.cpu_ns > 0, "{} {part:?}", subject.name);
        }
    }
}

/// A request that falls due while the thread still does the one before waits from then on. Sections of
/// 5 ms that fall due every ms are late by more and more.
#[test]
fn an_open_loop_counts_waits_from_when_requests_fall_due() {
    let config = Config {
        threads: 1,
        gap_us: 1000,
        critical_iterations: 20_000_000,
        window_ms: 300,
        ..CONFIG
    };
    let m = works("tas", &config);
    assert!(m.wait_ns(1.0) > 20e6, "{} ns", m.wait_ns(1.0));
}

/// As many things as were put in are taken out, up to those in the queue and in hand.
#[test]
fn a_queue_passes_on_what_it_gets() {
    let config = Config { threads: 4, places: 3, window_ms: 100, ..CONFIG };
    let m = works("pthread_mutex", &config);
    let of = |rest: usize| m.threads.iter().skip(rest).step_by(2).map(|t| t.all).sum::<u64>();
    assert!(of(0).abs_diff(of(1)) <= 3 + 4, "{} {}", of(0), of(1));
}

/// A thread of this process that computes all the time is kept out of windows of SCHED_RR.
#[test]
fn realtime_threads_are_alone_in_their_window() {
    let config = Config { threads: 1, realtime: 1, window_ms: 50, ..CONFIG };
    let stop = AtomicBool::new(false);
    let m = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    std::hint::black_box(0);
                }
            });
        }
        let m = run(subject("tas").unwrap(), &config);
        stop.store(true, Relaxed);
        m
    });
    match m {
        Ok(m) => {
            let share = m.window.cpu_ns as f64 / m.window.ns as f64;
            assert!(share > 0.9, "it had {share:.2} of a CPU");
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}"),
    }
}
