// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lock headers as user-space programs (`programs`): exclusion and lost wake-ups with more
//! threads than this computer has CPUs, natively, under ThreadSanitizer and as an aarch64 program.

mod common;

use common::{check, has, in_parallel, locks_dir, run, Build};
use std::process::Command;
use unspin_threads::locks::{by_name, Lock, LOCKS};

const THREADS: &str = "8";
const ROUNDS: &str = "2000";
/// Every budget is over after some cycles: waiters time out and halt all the time.
const HASTY: &[&str] = &["-DYIELDING", "-DHASTY"];
/// Every budget is spent before its first look.
const SPENT: &[&str] = &["-DYIELDING", "-DSPENT"];
const SHORT_OF_TIME: &[(&str, &[&str])] = &[("hasty", HASTY), ("spent", SPENT)];

/// Threads stop after this many ms if their rounds take longer: first-come locks wait for a switch
/// of the CPU at each. `verify/` searches for orders of steps that lose a wake-up.
const SOON: &str = "-DMS_ENOUGH=200";

fn stress(lock: &Lock, variant: &str, flags: &[&str], args: &[&str]) {
    let program = Build::new(lock, "stress", variant, &[flags, &[SOON]].concat()).make();
    run(&program, args).unwrap_or_else(|said| panic!("{} {variant}: {said}", lock.name));
}

/// Counters at and just before the values where halves and signs change: each thread takes one up.
fn starts(lock: &Lock) -> &'static [&'static str] {
    if lock.start.is_some() {
        &["0", "16383", "32764", "65531", "65535"]
    } else {
        &["0"]
    }
}

#[test]
fn locks_exclude_natively() {
    in_parallel(LOCKS, |lock| {
        for start in starts(lock) {
            stress(lock, "native", &["-DYIELDING"], &[THREADS, "500", start]);
            for (variant, flags) in SHORT_OF_TIME {
                stress(lock, variant, flags, &[THREADS, ROUNDS, start]);
            }
        }
    });
}

/// Signals stop holders and waiters for 1 ms each, in arbitrary places, futex calls among them.
#[test]
fn locks_survive_threads_held_up_anywhere() {
    in_parallel(LOCKS, |lock| {
        stress(lock, "native", &["-DYIELDING"], &[THREADS, "5000", "0", "300"]);
        for (variant, flags) in SHORT_OF_TIME {
            stress(lock, variant, flags, &[THREADS, "5000", "0", "300"]);
        }
    });
}

#[test]
fn locks_order_what_they_protect() {
    in_parallel(LOCKS, |lock| {
        let flags = ["-DYIELDING", "-fsanitize=thread"];
        stress(lock, "tsan", &flags, &[THREADS, ROUNDS, "32764"]);
        for (variant, short) in SHORT_OF_TIME {
            let flags = [short, &flags[1..]].concat();
            stress(lock, &format!("tsan-{variant}"), &flags, &[THREADS, ROUNDS]);
        }
    });
}

/// SIGSTOP holds the whole program up, holder, waiters and sleepers at once.
#[test]
fn locks_survive_a_stopped_program() {
    let all = LOCKS.iter().flat_map(|lock| SHORT_OF_TIME.iter().map(move |short| (lock, short)));
    let all: Vec<_> = all.collect();
    in_parallel(&all, |(lock, (variant, flags))| {
        let flags = [flags, &[SOON][..]].concat();
        let program = Build::new(lock, "stress", variant, &flags).make();
        let mut child = Command::new(program).args([THREADS, "20000"]).spawn().unwrap();
        let pid = libc::pid_t::try_from(child.id()).unwrap();
        for _ in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            // SAFETY: both only send signals to a child that has not been waited for.
            unsafe { libc::kill(pid, libc::SIGSTOP) };
            std::thread::sleep(std::time::Duration::from_millis(5));
            unsafe { libc::kill(pid, libc::SIGCONT) };
        }
        assert!(child.wait().unwrap().success(), "{} {variant}", lock.name);
    });
}

/// A weakly ordered processor, emulated; the compiler's code for it in any case.
#[test]
fn locks_exclude_on_aarch64() {
    if !has("aarch64-linux-gnu-gcc") || !has("qemu-aarch64") {
        return;
    }
    in_parallel(LOCKS, |lock| {
        let patient: (&str, &[&str]) = ("patient", &["-DYIELDING"]);
        for (variant, flags) in std::iter::once(&patient).chain(SHORT_OF_TIME) {
            let flags = [flags, &[SOON][..]].concat();
            let mut build = Build::new(lock, "stress", &format!("aarch64-{variant}"), &flags);
            build.compiler = "aarch64-linux-gnu-gcc";
            build.flags.push("-static".to_string());
            let program = build.make();
            check(Command::new("qemu-aarch64").arg(program).args(["4", "500", "32766"]))
                .unwrap_or_else(|said| panic!("{} {variant}: {said}", lock.name));
        }
    });
}

/// Orders whose absence ThreadSanitizer must report, one at a time. The queue locks pass the lock on
/// in several ways, so only without any order are they always wrong.
#[test]
fn weakened_locks_are_caught() {
    let names = [
        "tas",
        "ticket",
        "mcs",
        "preemptable",
        "pv_preemptable",
        "pv_ticket",
        "pv_queued",
        "lease",
    ];
    in_parallel(&names, |&name| {
        let lock = by_name(name).unwrap();
        let text = std::fs::read_to_string(locks_dir().join(lock.header)).unwrap();
        let orders = ["memory_order_acquire", "memory_order_release", "memory_order_acq_rel"];
        let orders = orders.into_iter().filter(|order| text.contains(order));
        let queue = matches!(name, "mcs" | "pv_queued");
        let groups: Vec<Vec<&str>> =
            if queue { vec![orders.collect()] } else { orders.map(|order| vec![order]).collect() };
        for group in groups {
            let flags = ["-DYIELDING", "-fsanitize=thread"];
            let mut build = Build::new(lock, "stress", &format!("weak-{}", group[0]), &flags);
            for order in &group {
                build = build.mutate(order, "memory_order_relaxed");
            }
            let said = run(&build.make(), &[THREADS, ROUNDS])
                .expect_err(&format!("{name} without {group:?} passed"));
            assert!(said.contains("data race"), "{name} without {group:?}: {said}");
        }
    });
}
