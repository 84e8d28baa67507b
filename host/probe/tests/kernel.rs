// SPDX-License-Identifier: MIT OR Apache-2.0
//! This computer's kernel accepts the programs, and they count what its threads do.

mod common;

use common::{computes, loaded, this_thread};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use unspin_diagnosis::State;
use unspin_host::cpus::set_affinity;
use unspin_probe::{Error, Probe, Takers, Thread};

/// For the programs any registered thread is a vCPU; this one never enters a guest.
fn is_on_a_cpu_ready_or_asleep(probe: Result<Probe, Error>) {
    let Some(mut probe) = loaded(probe) else { return };
    let thread = this_thread();
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
    // The two readings are slightly later than the readings of the clock.
    assert!(times.total().abs_diff(wall) < 2_000_000, "{spent:?} of {wall}");
    let asleep = times[State::Blocked] + times[State::Halted];
    // On a busy computer its time to sleep may begin, or be over, while it waits for a CPU.
    let ready: u64 = spent.iter().filter(|(state, _)| state.is_ready()).map(|(_, ns)| ns).sum();
    assert!(asleep < 220_000_000 && asleep + ready > 180_000_000, "{spent:?}");
    assert!(after.wakes > before.wakes && after.switches > before.switches);
    probe.watch(&BTreeSet::new()).unwrap();
    assert!(probe.read().unwrap().is_empty());
}

#[test]
fn a_thread_is_on_a_cpu_ready_or_asleep() {
    is_on_a_cpu_ready_or_asleep(Probe::load(false));
}

/// A thread that /proc shows as running may be in a guest, in its VMM, or waiting for a CPU.
#[test]
fn nothing_is_known_of_a_thread_before_its_first_event() {
    let Some(mut probe) = loaded(Probe::load(false)) else { return };
    let (told, threads) = std::sync::mpsc::channel();
    let computing = std::thread::spawn(move || {
        told.send(this_thread()).unwrap();
        computes(Duration::from_millis(200));
    });
    let thread = threads.recv().unwrap();
    for _ in 0..50 {
        probe.watch(&BTreeSet::from([thread])).unwrap();
        let seen = probe.read().unwrap()[&thread].clone();
        if seen.switches == 0 && seen.wakes == 0 {
            assert_eq!(seen.times.total(), 0, "{seen:?}");
        }
        probe.watch(&BTreeSet::new()).unwrap();
    }
    assert!(probe.takers().unwrap().is_empty(), "they are unknown");
    computing.join().unwrap();
}

#[test]
fn so_it_is_where_less_is_told_apart() {
    is_on_a_cpu_ready_or_asleep(Probe::load_brief());
}

/// A CPU that this process may use.
fn a_cpu() -> u32 {
    // SAFETY: it has no arguments and cannot fail.
    unsafe { libc::sched_getcpu() as u32 }
}

/// Two threads compute on one CPU: while one has it, the other is ready, and its sibling has the
/// CPU. Other threads may have the CPU, too.
#[test]
fn siblings_on_one_cpu_stop_each_other() {
    let Some(mut probe) = loaded(Probe::load_with_takers(false)) else { return };
    // On a busy computer much may happen between the readings.
    let mut wrong = String::new();
    for _ in 0..5 {
        match siblings_agree(&mut probe) {
            Ok(()) => return,
            Err(what) => wrong = what,
        }
    }
    panic!("{wrong}");
}

/// Two such threads: an error is that times and takers do not agree.
fn siblings_agree(probe: &mut Probe) -> Result<(), String> {
    let (cpu, pid) = (a_cpu(), std::process::id());
    let (told, begun) = std::sync::mpsc::channel();
    let computing = |_| {
        let told = told.clone();
        std::thread::spawn(move || {
            set_affinity(0, &[cpu].into()).unwrap();
            told.send(this_thread()).unwrap();
            computes(Duration::from_millis(700));
        })
    };
    let threads: Vec<_> = (0..2).map(computing).collect();
    let both: BTreeSet<Thread> = begun.iter().take(2).collect();
    probe.watch(&both).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    // Times and takers are not read at the same moment, so read the times between two readings of
    // takers.
    let look = || (probe.takers().unwrap(), probe.read().unwrap(), probe.takers().unwrap());
    let (sooner, before, taken_before) = look();
    std::thread::sleep(Duration::from_millis(400));
    let (taken, after, later) = look();
    let seen = both.iter().map(|thread| after[thread].since(&before[thread]));
    let (mut all, mut own) = (0, 0);
    for seen in seen {
        let by_sibling = seen.times[State::ReadySibling];
        let costop = seen.costop.unwrap();
        // The two are not read at the same moment.
        assert!(costop.abs_diff(by_sibling) < 20_000_000, "{costop} of {by_sibling}: {seen:?}");
        all += State::ALL.iter().filter(|s| s.is_ready()).map(|s| seen.times[*s]).sum::<u64>();
        own += by_sibling + seen.times[State::ReadyVmm];
    }
    assert!(own > 10_000_000, "{own}: they never waited for each other");
    let took =
        |all: &BTreeMap<u32, Takers>, tgid| all[&pid].by.get(&tgid).map_or(0, |taken| taken.ns);
    let least = |tgid| took(&taken, tgid).saturating_sub(took(&taken_before, tgid));
    let most = took(&later, pid) - took(&sooner, pid);
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(taken[&pid].by[&pid].command, name.trim_end());
    let is_between = least(pid) < own + 8_000_000 && own < most + 8_000_000;
    let mut wrong = String::new();
    if !is_between {
        wrong = format!("{} … {most}, {own}", least(pid));
    }
    let sum: u64 = taken[&pid].by.keys().map(|tgid| least(*tgid)).sum();
    if sum > all + 8_000_000 {
        wrong = format!("{sum} of {all}");
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong)
    }
}
