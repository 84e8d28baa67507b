// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lock headers in programs that go the same way each time, however busy the computer is
//! (`programs`): clients in orders drawn from seeds, counters at all their values, and the order that a
//! paper asks for. Wrong locks, each of which one of them must reject.

mod common;

use common::{in_parallel, run, Build};
use unspin_threads::locks::{by_name, LOCKS};

/// Every budget is over after some steps: waiters time out and halt all the time.
const HASTY: &[&str] = &["-DHASTY"];
/// Every budget is spent before its first look.
const SPENT: &[&str] = &["-DSPENT"];
/// Orders of a right lock; a wrong one fails in one of the first.
const SEEDS: &str = "400";

/// No wake-up is lost, no thread loops for ever, and no thread enters a held lock, whichever thread
/// makes the next step.
#[test]
fn locks_keep_their_promises_in_drawn_orders() {
    in_parallel(LOCKS, |lock| {
        let starts: &[&str] =
            if lock.start.is_some() { &["0", "16370", "32750", "65480", "65535"] } else { &["0"] };
        for (variant, flags) in [("hasty", HASTY), ("spent", SPENT)] {
            let program = Build::new(lock, "played", variant, flags).make();
            for start in starts {
                run(&program, &[SEEDS, start])
                    .unwrap_or_else(|said| panic!("{} {variant} from {start}: {said}", lock.name));
            }
        }
    });
}

#[test]
fn counters_may_have_any_value() {
    let counting: Vec<_> = LOCKS.iter().filter(|lock| lock.start.is_some()).collect();
    in_parallel(&counting, |lock| {
        let program = Build::new(lock, "wrap", "all", &[]).make();
        run(&program, &[]).unwrap_or_else(|said| panic!("{}: {said}", lock.name));
    });
}

/// What `played` says of a lost wake-up, of a wait without end, and of a lock that is no lock.
const HALT: &str = "all halt, and nobody is left to wake them";
const ROUND: &str = "nobody gets the lock";
const TWO: &str = "two hold the lock";
/// What `wrap` says begins so.
const COUNTERS: &str = "counters at";

/// A wrong lock: lock, program, flags, start of its counters, the replaced text, its replacement,
/// the program's message.
type Mutant<'a> = (&'a str, &'a str, &'a [&'a str], &'a str, &'a str, &'a str, &'a str);

const MUTANTS: &[Mutant] = &[
    ("ticket", "wrap", &[], "0", "(unsigned short)(serving + 1)", "serving | 1", COUNTERS),
    // A head that carries into the tail, an off-by-one in the width of the numbers.
    ("pv_preemptable", "wrap", &[], "0", "1 - 0x10000u : 1", "1 - 0x20000u : 1", COUNTERS),
    ("preemptable", "wrap", &[], "0", "NUMBERS 0x7fffu", "NUMBERS 0xffffu", COUNTERS),
    ("pv_ticket", "wrap", &[], "0", "NEXT_ONE 0x20000u", "NEXT_ONE 0x10000u", COUNTERS),
    // trylock that takes a held lock.
    ("tas", "wrap", &[], "0", "memory_order_acquire) == 0", "memory_order_acquire) <= 1", COUNTERS),
    ("tas", "played", HASTY, "0", "memory_order_acquire) == 0", "memory_order_acquire) <= 1", TWO),
    // A grant counted twice instead of a release.
    (
        "preemptable",
        "played",
        HASTY,
        "0",
        "(unsigned short)(low + 1)",
        "(unsigned short)(low + 2)",
        ROUND,
    ),
    // Lost wake-ups: no thread is woken, the wrong one is, the request to be woken is forgotten.
    ("pv_preemptable", "played", HASTY, "0", "unspin_lock_wake_all(&lock->both)", "(void)0", HALT),
    (
        "pv_ticket",
        "played",
        HASTY,
        "0",
        "low + next * UNSPIN_PV_TICKET_SERVE_ONE",
        "low + (next + 1) * UNSPIN_PV_TICKET_SERVE_ONE",
        HALT,
    ),
    (
        "pv_ticket",
        "played",
        HASTY,
        "0",
        "!(low & UNSPIN_PV_TICKET_HALTED)",
        "low & UNSPIN_PV_TICKET_HALTED",
        HALT,
    ),
    ("pv_queued", "played", HASTY, "0", "unspin_lock_wake(&first->state, 0)", "(void)first", HALT),
    ("pv_queued", "played", HASTY, "0", "unspin_lock_wake(&lock->word, 0)", "(void)0", HALT),
    // No thread becomes the heir; the line's counters carry into each other.
    ("lease", "played", HASTY, "0", "unspin_lock_wake(&lock->line, heir)", "(void)0", HALT),
    ("lease", "played", HASTY, "65535", "heir ? 1 : 1 - 0x10000u", "1", HALT),
    ("lease", "wrap", &[], "0", "return !(uses & 1) &&", "return", COUNTERS),
    // One that halts although its turn has come, or a release has been.
    (
        "pv_ticket",
        "played",
        HASTY,
        "0",
        "if (unspin_pv_ticket_ahead(both, mine))\n\t\tunspin_lock_wait",
        "unspin_lock_wait",
        HALT,
    ),
    ("pv_preemptable", "played", HASTY, "0", "if (both & UNSPIN_PV_PREEMPTABLE_HELD)", "", HALT),
];

#[test]
fn wrong_locks_are_caught() {
    let numbered: Vec<_> = MUTANTS.iter().enumerate().collect();
    in_parallel(&numbered, |(index, (name, program, flags, start, what, by, says))| {
        let lock = by_name(name).unwrap();
        let build = Build::new(lock, program, &format!("mutant-{index}"), flags);
        let said = run(&build.mutate(what, by).make(), &[SEEDS, start])
            .expect_err(&format!("{name} with {by:?} for {what:?} passed"));
        println!("{name} with {by:?}: {said}");
        assert!(said.contains(says), "{name} with {by:?}: {said}");
    });
}

/// Waits that look only while there is time: where every budget is spent they go round for ever.
#[test]
fn waits_that_do_not_look_once_are_caught() {
    // The condition of a wait, and the name of its budget.
    let first_come = ("unspin_pv_ticket_ahead(atomic_load_explicit(", "budget");
    let waits = [
        ("pv_ticket", first_come),
        ("oticket", first_come),
        ("iticket", first_come),
        ("long_ticket", first_come),
        (
            "pv_preemptable",
            ("atomic_fetch_or_explicit(&lock->both, UNSPIN_PV_PREEMPTABLE_HELD", "budget"),
        ),
        ("pv_queued", ("atomic_load_explicit(&node->state", "budget")),
        ("lease", ("!unspin_lease_take(", "awake")),
    ];
    in_parallel(&waits, |(name, (look, budget))| {
        let mut build = Build::new(by_name(name).unwrap(), "played", "does-not-look", SPENT)
            .mutate(
                &format!("while ({look}"),
                &format!("while (unspin_lock_budget_spent(&{budget}) || {look}"),
            );
        if *name == "pv_queued" {
            // Nor does it go where the exchange says that it is first.
            let first = "state == UNSPIN_PV_QUEUED_FIRST)\n\t\treturn ";
            build = build.mutate(&format!("{first}true"), &format!("{first}false"));
        }
        let said = run(&build.make(), &[SEEDS]).expect_err(&format!("{name} passed"));
        println!("{name}: {said}");
        assert!(said.contains(ROUND), "{name}: {said}");
    });
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
            (
                "tau-once",
                "unspin_lock_budget(tau_ns, ahead)",
                "unspin_lock_budget(tau_ns, 1)",
                "figure 1|2 tau",
            ),
            (
                "tau-once-at-the-draw",
                "unspin_lock_budget(tau_ns, ahead);\n\tunsigned int turn",
                "unspin_lock_budget(tau_ns, 1);\n\tunsigned int turn",
                "from the draw",
            ),
            (
                "not-anew",
                "ahead = now_ahead;\n\t\t\tbudget = unspin_lock_budget(tau_ns, ahead);",
                "ahead = now_ahead;",
                "figure 1",
            ),
            (
                "never-over",
                "|| !unspin_lock_budget_spent(&budget)",
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
