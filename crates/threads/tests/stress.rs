// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lock headers as user-space programs (`locks/test`): exclusion and lost wake-ups with more
//! threads than this computer has CPUs, natively, under ThreadSanitizer and as an aarch64 program.

mod common;

use common::{check, locks_dir, run, Build};
use std::process::Command;
use unspin_threads::locks::{by_name, Lock, LOCKS};

const THREADS: &str = "8";
const ROUNDS: &str = "2000";
/// Every budget is over after some cycles: waiters time out and halt all the time.
const HASTY: &[&str] = &["-DYIELDING", "-DHASTY"];
/// Every budget is spent before its first look.
const SPENT: &[&str] = &["-DYIELDING", "-DSPENT"];
const SHORT_OF_TIME: &[(&str, &[&str])] = &[("hasty", HASTY), ("spent", SPENT)];

/// More rounds than there is time for: a lock that hangs ends by the alarm, one that does not by itself,
/// before the alarm.
const MANY: &str = "1000000000";
const ENDS_SOON: &[&str] = &["-DMS_ENOUGH=500", "-DSECONDS_MAX=2"];

fn stress(lock: &Lock, variant: &str, flags: &[&str], args: &[&str]) {
    let program = Build::new(lock, "stress", variant, flags).make();
    run(&program, args).unwrap_or_else(|said| panic!("{} {variant}: {said}", lock.name));
}

/// Counters just before and at the values where halves and signs change.
fn starts(lock: &Lock) -> &'static [&'static str] {
    if lock.start.is_some() {
        &["0", "16383", "32700", "65500", "65535"]
    } else {
        &["0"]
    }
}

#[test]
fn locks_exclude_natively() {
    for lock in LOCKS {
        for start in starts(lock) {
            stress(lock, "native", &["-DYIELDING"], &[THREADS, "500", start]);
            for (variant, flags) in SHORT_OF_TIME {
                stress(lock, variant, flags, &[THREADS, ROUNDS, start]);
            }
        }
    }
}

/// Signals stop holders and waiters for 1 ms each, in arbitrary places, futex calls among them.
#[test]
fn locks_survive_threads_held_up_anywhere() {
    for lock in LOCKS {
        stress(lock, "held-up", &["-DYIELDING"], &[THREADS, "5000", "0", "300"]);
        for (variant, flags) in SHORT_OF_TIME {
            stress(lock, &format!("held-up-{variant}"), flags, &[THREADS, "5000", "0", "300"]);
        }
    }
}

#[test]
fn locks_order_what_they_protect() {
    for lock in LOCKS {
        let flags = ["-DYIELDING", "-fsanitize=thread"];
        stress(lock, "tsan", &flags, &[THREADS, ROUNDS, "32700"]);
        for (variant, short) in SHORT_OF_TIME {
            let flags = [short, &flags[1..]].concat();
            stress(lock, &format!("tsan-{variant}"), &flags, &[THREADS, ROUNDS]);
        }
    }
}

/// SIGSTOP holds the whole program up, holder, waiters and sleepers at once.
#[test]
fn locks_survive_a_stopped_program() {
    let all = LOCKS.iter().flat_map(|lock| SHORT_OF_TIME.iter().map(move |short| (lock, short)));
    for (lock, (variant, flags)) in all {
        let program = Build::new(lock, "stress", &format!("stopped-{variant}"), flags).make();
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
    }
}

#[test]
fn counters_may_have_any_value() {
    for lock in LOCKS.iter().filter(|lock| lock.start.is_some()) {
        let program = Build::new(lock, "wrap", "all", &[]).make();
        run(&program, &[]).unwrap_or_else(|said| panic!("{}: {said}", lock.name));
    }
}

/// A weakly ordered processor, emulated; the compiler's code for it in any case.
#[test]
fn locks_exclude_on_aarch64() {
    for tool in ["aarch64-linux-gnu-gcc", "qemu-aarch64"] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!("SKIPPED: locks on aarch64: no {tool} on this computer");
            return;
        }
    }
    for lock in LOCKS {
        let patient: (&str, &[&str]) = ("patient", &["-DYIELDING"]);
        for (variant, flags) in std::iter::once(&patient).chain(SHORT_OF_TIME) {
            let mut build = Build::new(lock, "stress", &format!("aarch64-{variant}"), flags);
            build.compiler = "aarch64-linux-gnu-gcc";
            build.flags.push("-static".to_string());
            let program = build.make();
            check(Command::new("qemu-aarch64").arg(program).args(["4", "500", "32700"]))
                .unwrap_or_else(|said| panic!("{} {variant}: {said}", lock.name));
        }
    }
}

/// Orders whose absence ThreadSanitizer must report, one at a time. The queue locks pass the lock on
/// in several ways, so only without any order are they always wrong.
#[test]
fn weakened_locks_are_caught() {
    for name in
        ["tas", "ticket", "mcs", "preemptable", "pv_preemptable", "pv_ticket", "pv_queued", "lease"]
    {
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
    }
}

/// Wrong code that the programs must reject: lock, program, flags, arguments, what, by what.
type Mutant<'a> = (&'a str, &'a str, &'a [&'a str], &'a [&'a str], &'a str, &'a str);

#[test]
fn wrong_locks_are_caught() {
    let mutants: &[Mutant] = &[
        ("ticket", "wrap", &[], &[], "(unsigned short)(serving + 1)", "serving | 1"),
        // A head that carries into the tail, an off-by-one in the width of the numbers.
        ("pv_preemptable", "wrap", &[], &[], "1 - 0x10000u : 1", "1 - 0x20000u : 1"),
        ("preemptable", "wrap", &[], &[], "NUMBERS 0x7fffu", "NUMBERS 0xffffu"),
        ("pv_ticket", "wrap", &[], &[], "NEXT_ONE 0x20000u", "NEXT_ONE 0x10000u"),
        // trylock that takes a held lock.
        ("tas", "wrap", &[], &[], "memory_order_acquire) == 0", "memory_order_acquire) <= 1"),
        // A grant counted twice instead of a release.
        (
            "preemptable",
            "hang",
            HASTY,
            &[THREADS, MANY],
            "(unsigned short)(low + 1)",
            "(unsigned short)(low + 2)",
        ),
        // Lost wake-ups: nobody is woken, the wrong one is, the wish to be woken is forgotten.
        (
            "pv_preemptable",
            "hang",
            HASTY,
            &[THREADS, MANY],
            "lock_wake_all(&lock->both)",
            "(void)0",
        ),
        (
            "pv_ticket",
            "hang",
            HASTY,
            &[THREADS, MANY],
            "low + next * PV_TICKET_SERVE_ONE",
            "low + (next + 1) * PV_TICKET_SERVE_ONE",
        ),
        (
            "pv_ticket",
            "hang",
            HASTY,
            &[THREADS, MANY],
            "!(low & PV_TICKET_HALTED)",
            "low & PV_TICKET_HALTED",
        ),
        ("pv_queued", "hang", HASTY, &[THREADS, MANY], "lock_wake(&after->state, 0)", "(void)0"),
        ("pv_queued", "hang", HASTY, &[THREADS, MANY], "lock_wake(&lock->word, 0)", "(void)0"),
        // Nobody becomes the heir; the line's counters carry into each other.
        ("lease", "hang", HASTY, &[THREADS, MANY], "lock_wake(&lock->line, heir)", "(void)0"),
        ("lease", "hang", HASTY, &[THREADS, MANY, "65535"], "heir ? 1 : 1 - 0x10000u", "1"),
        ("lease", "wrap", &[], &[], "return !(uses & 1) &&", "return"),
    ];
    for (index, (name, program, flags, args, what, by)) in mutants.iter().enumerate() {
        let lock = by_name(name).unwrap();
        // A lost wake-up is a hang: it ends by a short alarm.
        let hangs = *program == "hang";
        let program = if hangs { "stress" } else { program };
        let mut flags = flags.to_vec();
        if hangs {
            flags.extend(ENDS_SOON);
        }
        let build = Build::new(lock, program, &format!("mutant-{index}"), &flags);
        let said = run(&build.mutate(what, by).make(), args)
            .expect_err(&format!("{name} with {by:?} for {what:?} passed"));
        assert_eq!(said.contains("signal: 14"), hangs, "{name} with {by:?}: {said}");
    }
}

/// Waits that look only while there is time: where every budget is spent they go round for ever.
#[test]
fn waits_that_do_not_look_once_are_caught() {
    // The condition of a wait, and the name of its budget.
    let first_come = ("pv_ticket_ahead(atomic_load_explicit(", "budget");
    let waits = [
        ("pv_ticket", first_come),
        ("oticket", first_come),
        ("iticket", first_come),
        ("long_ticket", first_come),
        ("pv_preemptable", ("atomic_fetch_or_explicit(&lock->both, PV_PREEMPTABLE_HELD", "budget")),
        ("pv_queued", ("atomic_load_explicit(&node->state", "budget")),
        ("lease", ("!lease_take(", "awake")),
    ];
    for (name, (look, budget)) in waits {
        let flags = [SPENT, ENDS_SOON].concat();
        let mut build = Build::new(by_name(name).unwrap(), "stress", "does-not-look", &flags)
            .mutate(
                &format!("while ({look}"),
                &format!("while (lock_budget_spent(&{budget}) || {look}"),
            );
        if name == "pv_queued" {
            // Nor does it go where the exchange says that it is first.
            let first = "state == PV_QUEUED_FIRST)\n\t\treturn ";
            build = build.mutate(&format!("{first}true"), &format!("{first}false"));
        }
        let said = run(&build.make(), &[THREADS, MANY]).expect_err(&format!("{name} passed"));
        assert!(said.contains("signal: 14"), "{name}: {said}");
    }
}

/// The rules of VEE 2013, section 4.3, and locks that break one each.
#[test]
fn preemptable_locks_keep_the_papers_order() {
    let numbers = [("preemptable", "word>>16"), ("pv_preemptable", "word>>17")];
    for (name, requests) in numbers {
        let lock = by_name(name).unwrap();
        let flag = format!("-DNUMBERS(word)=({requests})");
        let build = || Build::new(lock, "order", "rules", &[flag.as_str()]);
        run(&build().make(), &[]).unwrap_or_else(|said| panic!("{name}: {said}"));
        let mutants = [
            ("tau-once", "lock_budget(tau_ns, ahead)", "lock_budget(tau_ns, 1)", "figure 1|2 tau"),
            (
                "tau-once-at-the-draw",
                "lock_budget(tau_ns, ahead);\n\tunsigned int turn",
                "lock_budget(tau_ns, 1);\n\tunsigned int turn",
                "from the draw",
            ),
            (
                "not-anew",
                "ahead = now_ahead;\n\t\t\tbudget = lock_budget(tau_ns, ahead);",
                "ahead = now_ahead;",
                "figure 1",
            ),
            (
                "never-over",
                "|| !lock_budget_spent(&budget)",
                "|| budget.since_ticks + 1",
                "figure 1",
            ),
            (
                "waits-when-passed",
                "if (!now_ahead || now_ahead > ahead)\n\t\t\treturn;\n\t\tif (now_ahead < ahead) {",
                "if (!now_ahead)\n\t\t\treturn;\n\t\tif (now_ahead != ahead) {",
                "every later one",
            ),
            (
                "trylock-passes",
                "_is_idle(both))\n\t\treturn false;",
                "_is_idle(both) && (both & 1))\n\t\treturn false;",
                "every later one: trylock does not pass",
            ),
        ];
        for (variant, what, by, says) in mutants {
            let mut build = build().mutate(what, by);
            build.variant = variant.to_string();
            let said = run(&build.make(), &[]).expect_err(&format!("{name} {variant} passed"));
            let named = says.split('|').any(|says| said.contains(says));
            assert!(named, "{name} {variant}: {said}");
        }
    }
}
