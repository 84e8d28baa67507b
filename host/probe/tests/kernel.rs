// SPDX-License-Identifier: MIT OR Apache-2.0
//! This computer's kernel takes the programs, and they count what its threads do.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use unspin_diagnosis::State;
use unspin_probe::{Error, Probe, Thread};

fn computes(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// To the programs any thread that is entered is a vCPU; this one never enters a guest.
fn is_on_a_cpu_ready_or_asleep(loaded: Result<Probe, Error>) {
    let mut probe = match loaded {
        Ok(probe) => probe,
        Err(e) if e.is_of_this_computer() => {
            println!("SKIPPED: BPF programs in this computer's kernel: {e}");
            return;
        }
        Err(e) => panic!("{e}"),
    };
    // SAFETY: it has no arguments and cannot fail.
    let tid = unsafe { libc::gettid() } as u32;
    let thread = Thread { tid, pid: std::process::id() };
    probe.watch(&BTreeSet::from([thread])).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let before = probe.read().unwrap()[&thread].clone();
    let start = Instant::now();
    computes(Duration::from_millis(100));
    std::thread::sleep(Duration::from_millis(200));
    let after = probe.read().unwrap()[&thread].clone();
    let wall = start.elapsed().as_nanos() as u64;
    let times = after.times.since(&before.times);
    let spent: Vec<(State, u64)> = times.spent().collect();
    // The two readings are not exactly where the clock was read.
    assert!(times.total().abs_diff(wall) < 2_000_000, "{spent:?} of {wall}");
    let asleep = times[State::Blocked] + times[State::Halted];
    assert!(asleep.abs_diff(200_000_000) < 20_000_000, "{spent:?}");
    assert!(after.wakes > before.wakes && after.switches > before.switches);
    probe.watch(&BTreeSet::new()).unwrap();
    assert!(probe.read().unwrap().is_empty());
}

#[test]
fn a_thread_is_on_a_cpu_ready_or_asleep() {
    is_on_a_cpu_ready_or_asleep(Probe::load(false));
}

#[test]
fn so_it_is_where_less_is_told_apart() {
    is_on_a_cpu_ready_or_asleep(Probe::load_brief());
}
