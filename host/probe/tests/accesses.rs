// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accesses of a small guest under this computer's KVM are counted, each with its name.

mod common;
mod guest;

use common::{computes, loaded, this_thread};
use guest::Guest;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use unspin_diagnosis::{groups, State};
use unspin_probe::{Probe, Thread};

const ROUNDS: u64 = 200;

/// `None`, and a message, if this computer cannot run the test.
fn needed() -> Option<(Probe, Guest)> {
    let probe = loaded(Probe::load_detailed(false))?;
    match Guest::new() {
        Ok(guest) => Some((probe, guest)),
        Err(e) => {
            println!("SKIPPED: a guest of this computer's KVM: {e}");
            None
        }
    }
}

#[test]
fn accesses_of_a_guest_have_names() {
    let Some((mut probe, mut guest)) = needed() else { return };
    let thread = this_thread();
    probe.watch(&BTreeSet::from([thread])).unwrap();
    let of_vm = |probe: &Probe| probe.read_vms().unwrap()[&thread.pid].clone();
    let (before, states) = (of_vm(&probe), probe.read().unwrap()[&thread].clone());
    if let Err(e) = guest.run(ROUNDS) {
        println!("SKIPPED: a guest of this computer's KVM: {e}");
        return;
    }
    let seen = of_vm(&probe).since(&before);
    let states = probe.read().unwrap()[&thread].since(&states);
    let groups = groups(seen.accesses.expect("this kernel has the tracepoints"));
    let find = |title: &str| groups.iter().find(|group| group.title() == title);
    let port =
        find("ports 0x70-0x71: real-time clock (RTC)").unwrap_or_else(|| panic!("{groups:?}"));
    let memory = find("memory 0xa0000: display (VGA)").unwrap_or_else(|| panic!("{groups:?}"));
    // The last round may not be finished.
    assert!((2 * ROUNDS - 1..=2 * ROUNDS).contains(&port.accessed.count), "{port:?}");
    assert!((ROUNDS - 1..=ROUNDS).contains(&memory.accessed.count), "{memory:?}");
    if states.exits.total() == 0 {
        println!("SKIPPED in part: this computer's KVM runs such a guest without leaving it");
        return;
    }
    let register = find("MSR 0x3b: adjustment of the time stamp counter");
    assert_eq!(register.map(|group| group.accessed.count), Some(ROUNDS), "{groups:?}");
    let ns: u64 = groups.iter().map(|group| group.accessed.ns).sum();
    let times = &states.times;
    let spent =
        times.of(&[State::ExitIo, State::ExitMmio, State::ExitMsr, State::Vmm, State::ExitMemory]);
    assert!(ns > 0 && ns <= spent, "{ns} of {spent}: {groups:?}");
    assert!(
        port.accessed.visits > 0 && memory.accessed.visits > 0,
        "the VMM served them: {groups:?}"
    );
}

/// Two threads compute and sleep: they want a CPU while they run or wait for one.
#[test]
fn how_many_want_a_cpu_is_counted() {
    let Some((mut probe, _)) = needed() else { return };
    let pid = std::process::id();
    let (tell, hear) = std::sync::mpsc::channel();
    let works: Vec<_> = (0..2)
        .map(|number| {
            let tell = tell.clone();
            std::thread::spawn(move || {
                tell.send(this_thread()).unwrap();
                std::thread::sleep(Duration::from_millis(100));
                computes(Duration::from_millis(50 + 50 * number));
                std::thread::sleep(Duration::from_millis(100));
            })
        })
        .collect();
    let threads: BTreeSet<Thread> = hear.iter().take(2).collect();
    let start = Instant::now();
    probe.watch(&threads).unwrap();
    works.into_iter().for_each(|work| work.join().unwrap());
    let wall = start.elapsed().as_nanos() as u64;
    let wanting = probe.read_vms().unwrap()[&pid].wanting_ns.clone();
    let seen = probe.read().unwrap();
    let asleep = [State::Blocked, State::Halted, State::Stopped];
    let wanted: u64 = seen.values().map(|of| of.times.total() - of.times.of(&asleep)).sum();
    let counted: u64 = (0..).zip(&wanting).map(|(many, ns)| many * ns).sum();
    // Their time before the first event is unknown.
    assert!(counted.abs_diff(wanted) < wanted / 5, "{counted} of {wanted}: {wanting:?}");
    assert!(wanting.iter().sum::<u64>() <= wall, "{wanting:?}");
    assert!(wanting[0] > 0 && wanting[1] > 0, "{wanting:?}");
    assert_eq!(wanting[3..].iter().sum::<u64>(), 0, "{wanting:?}");
}

/// A thread that computes is no longer watched, like one that turns out not to run a vCPU.
#[test]
fn a_thread_that_is_dropped_wants_no_cpu() {
    let Some((mut probe, _)) = needed() else { return };
    let (tell, hear) = std::sync::mpsc::channel();
    let (begin, begun) = std::sync::mpsc::channel::<()>();
    let computing = std::thread::spawn(move || {
        tell.send(this_thread()).unwrap();
        begun.recv().unwrap();
        computes(Duration::from_millis(700));
    });
    let (own, other) = (this_thread(), hear.recv().unwrap());
    probe.watch(&BTreeSet::from([own, other])).unwrap();
    begin.send(()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let wanting = |probe: &Probe| probe.read_vms().unwrap()[&own.pid].wanting_ns.clone();
    let both = wanting(&probe);
    assert!(both[1] > 20_000_000, "{both:?}");
    probe.watch(&BTreeSet::from([own])).unwrap();
    let before = wanting(&probe);
    std::thread::sleep(Duration::from_millis(300));
    let after = wanting(&probe);
    let grew: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    // This thread may have waited for a CPU.
    assert!(grew[0] > 150_000_000 && grew[2..].iter().sum::<u64>() == 0, "{grew:?}");
    computing.join().unwrap();
}
