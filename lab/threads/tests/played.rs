// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lock headers in programs that go the same way each time, however busy the computer is
//! (`programs`): counters at all their values, and the order that a paper asks for. Wrong locks, each of
//! which one of them must reject.

mod common;

use common::{in_parallel, run, Build};
use unspin_threads::locks::{by_name, LOCKS};

#[test]
fn counters_may_have_any_value() {
    let counting: Vec<_> = LOCKS.iter().filter(|lock| lock.start.is_some()).collect();
    in_parallel(&counting, |lock| {
        let program = Build::new(lock, "wrap", "all", &[]).make();
        run(&program, &[]).unwrap_or_else(|said| panic!("{}: {said}", lock.name));
    });
}

/// A wrong lock: lock, text of its header, what stands there instead. Heads that carry into tails, and
/// numbers that are too wide, among them.
const MUTANTS: &[(&str, &str, &str)] = &[
    ("ticket", "(unsigned short)(serving + 1)", "serving | 1"),
    ("pv_preemptable", "1 - 0x10000u : 1", "1 - 0x20000u : 1"),
    ("preemptable", "NUMBERS 0x7fffu", "NUMBERS 0xffffu"),
    ("pv_ticket", "NEXT_ONE 0x20000u", "NEXT_ONE 0x10000u"),
    ("tas", "memory_order_acquire) == 0", "memory_order_acquire) <= 1"),
    ("lease", "return !(uses & 1) &&", "return"),
];

#[test]
fn wrong_counters_are_caught() {
    let numbered: Vec<_> = MUTANTS.iter().enumerate().collect();
    in_parallel(&numbered, |(index, (name, what, by))| {
        let build = Build::new(by_name(name).unwrap(), "wrap", &format!("mutant-{index}"), &[]);
        let said = run(&build.mutate(what, by).make(), &[])
            .expect_err(&format!("{name} with {by:?} for {what:?} passed"));
        assert!(said.contains("counters at"), "{name} with {by:?}: {said}");
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
