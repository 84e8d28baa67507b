// SPDX-License-Identifier: MIT OR Apache-2.0
//! The models of `core/verify/` under SPIN: locks with 3 vCPUs that the host preempts, parked vCPUs, and
//! wrong ones of both, each of which a named check must reject. `UNSPIN_VERIFY_FULL=1` checks more: more
//! preemptions and rounds, and 4 vCPUs.

mod common;

use common::in_parallel;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use unspin_threads::locks::LOCKS;

/// A model, the choices that make it a lock, and the locks it is of. Thresholds may be over at any time
/// in a model, so locks that differ by them alone share one.
type Model = (&'static str, &'static [&'static str], &'static [&'static str]);

const MODELS: &[Model] = &[
    ("tas", &[], &["tas"]),
    ("ticket", &[], &["ticket"]),
    ("mcs", &[], &["mcs"]),
    ("pv_ticket", &["-DKICKS=1"], &["pv_ticket", "iticket", "long_ticket", "oticket_spin"]),
    ("pv_ticket", &["-DKICKS=2"], &["oticket", "oticket_wake"]),
    ("preemptable", &[], &["preemptable"]),
    ("preemptable", &["-DANY_TIME"], &["preemptable"]),
    ("preemptable", &["-DPV"], &["pv_preemptable"]),
    ("preemptable", &["-DPV", "-DANY_TIME"], &["pv_preemptable"]),
    ("pv_queued", &[], &["pv_queued"]),
    ("lease", &[], &["lease"]),
];
const MUTANTS_MIN: usize = 5;

/// A wrong lock: model, choices, the fault, the check that must find it.
type Mutant = (&'static str, &'static [&'static str], &'static str, &'static str);

const MUTANTS: &[Mutant] = &[
    ("tas", &[], "SPLIT_EXCHANGE", "progress"),
    ("tas", &[], "INVERTED", "is_locked_while_held"),
    ("tas", &[], "WAITS_FOR_HELD", "progress"),
    ("tas", &["-DTRY"], "TRYLOCK_READS", "is_locked_while_held"),
    ("tas", &[], "NEVER_RELEASED", "progress"),
    ("ticket", &[], "SPLIT_DRAW", "progress"),
    ("ticket", &[], "OFF_BY_ONE", "free_at_the_end"),
    ("ticket", &["-DTRY"], "TRYLOCK_IGNORES_WAITERS", "trylock_respects_waiters"),
    ("ticket", &[], "NO_WRAP", "progress"),
    ("ticket", &[], "SERVES_TWO", "first_come"),
    ("mcs", &[], "SPLIT_EXCHANGE", "progress"),
    ("mcs", &[], "WAITING_LATE", "progress"),
    ("mcs", &[], "NO_WAIT", "mutual_exclusion"),
    ("mcs", &["-DTRY"], "TRYLOCK_ANYWAY", "progress"),
    ("mcs", &[], "SPLIT_RELEASE", "progress"),
    ("mcs", &[], "LINK_NOT_AWAITED", "progress"),
    ("pv_ticket", &["-DKICKS=1"], "LOOKS_BEFORE_IT_TELLS", "progress"),
    ("pv_ticket", &["-DKICKS=2"], "LOOKS_BEFORE_IT_TELLS", "progress"),
    ("pv_ticket", &["-DKICKS=1"], "NO_LOOK_BEFORE_HALT", "progress"),
    ("pv_ticket", &["-DKICKS=2"], "NO_LOOK_BEFORE_HALT", "progress"),
    ("pv_ticket", &["-DKICKS=1"], "CLEARS_WITH_WAITERS", "progress"),
    ("pv_ticket", &["-DKICKS=2"], "CLEARS_WITH_WAITERS", "progress"),
    ("pv_ticket", &["-DKICKS=1", "-DTRY"], "TRYLOCK_IGNORES_WAITERS", "trylock_respects_waiters"),
    ("pv_ticket", &["-DKICKS=2", "-DTRY"], "TRYLOCK_IGNORES_WAITERS", "trylock_respects_waiters"),
    ("pv_ticket", &["-DKICKS=1"], "LOOKS_BEFORE_IT_SERVES", "progress"),
    ("pv_ticket", &["-DKICKS=2"], "LOOKS_BEFORE_IT_SERVES", "progress"),
    ("pv_ticket", &["-DKICKS=1"], "NO_KICK", "progress"),
    ("pv_ticket", &["-DKICKS=2"], "NO_KICK", "progress"),
    ("pv_ticket", &["-DKICKS=1"], "KICKS_THE_NEXT_BUT_ONE", "progress"),
    ("pv_ticket", &["-DKICKS=2"], "KICKS_THE_NEXT_BUT_ONE", "progress"),
    ("pv_ticket", &["-DKICKS=1"], "DOES_NOT_LOOK", "livelock"),
    ("pv_ticket", &["-DKICKS=2"], "DOES_NOT_LOOK", "livelock"),
    ("preemptable", &["-DANY_TIME"], "SPLIT_DRAW", "is_locked_while_held"),
    ("preemptable", &[], "OFF_BY_ONE", "order_kept"),
    ("preemptable", &[], "WAITS_WHEN_PASSED", "progress"),
    ("preemptable", &["-DANY_TIME"], "NO_COMPETITION", "mutual_exclusion"),
    ("preemptable", &["-DTRY"], "TRYLOCK_IGNORES_WAITERS", "trylock_respects_waiters"),
    ("preemptable", &["-DANY_TIME"], "RELEASES_BEFORE_IT_COUNTS", "free_at_the_end"),
    ("preemptable", &[], "FORGETS_TO_COUNT", "progress"),
    ("preemptable", &["-DPV"], "LOOKS_BEFORE_IT_TELLS", "progress"),
    ("preemptable", &["-DPV"], "NO_LOOK_BEFORE_HALT", "progress"),
    ("preemptable", &["-DPV"], "NO_KICK", "progress"),
    ("preemptable", &["-DPV", "-DANY_TIME"], "KICKS_ONE", "progress"),
    ("preemptable", &["-DPV"], "WAKES_WHAT_IT_SAW_BEFORE", "progress"),
    ("preemptable", &["-DPV", "-DANY_TIME"], "NO_COMPETITION", "mutual_exclusion"),
    ("preemptable", &["-DPV"], "DOES_NOT_LOOK", "livelock"),
    ("pv_queued", &[], "SPLIT_EXCHANGE", "progress"),
    ("pv_queued", &[], "HALTS_BLINDLY", "progress"),
    ("pv_queued", &[], "TELLS_WITHOUT_LOOKING", "progress"),
    ("pv_queued", &[], "SPLIT_PASS_ON", "progress"),
    ("pv_queued", &[], "NO_KICK_OF_THE_NEXT", "progress"),
    ("pv_queued", &["-DTRY"], "TRYLOCK_ANYWAY", "is_locked_while_held"),
    ("pv_queued", &[], "LOOKS_BEFORE_IT_RELEASES", "progress"),
    ("pv_queued", &[], "NO_KICK", "progress"),
    ("pv_queued", &[], "STARTS_OVER", "livelock"),
    ("lease", &[], "SPLIT_TAKE", "is_locked_while_held"),
    ("lease", &[], "SPLIT_DRAW", "line_kept"),
    ("lease", &[], "HALTS_BLINDLY", "progress"),
    ("lease", &[], "LOOKS_BEFORE_IT_PASSES_ON", "progress"),
    ("lease", &[], "PASSES_ON_BEFORE_IT_TAKES", "line_kept"),
    ("lease", &[], "NO_WAKE", "progress"),
    ("lease", &[], "WISH_STAYS", "free_at_the_end"),
    ("lease", &[], "NAP_WITHOUT_LIMIT", "progress"),
    ("lease", &[], "DOES_NOT_LOOK", "livelock"),
    ("lease", &["-DTRY"], "TRYLOCK_IGNORES_THE_WISH", "trylock_respects_waiters"),
];

/// Of the module's way to keep a vCPU from running (`core/kmod/park.c`), a barrier or a step left out each.
const PARK_MUTANTS: &[Mutant] = &[
    ("park", &[], "CLEARS_WITHOUT_BARRIER", "request_not_lost"),
    ("park", &[], "DOES_NOT_ASK", "request_not_lost"),
    ("park", &[], "LOOKS_BEFORE_IT_SLEEPS", "wake_up_not_lost"),
    ("park", &[], "GIVES_WITHOUT_BARRIER", "wake_up_not_lost"),
];

fn have_spin(what: &str) -> bool {
    let there = Command::new("spin").arg("-V").output().is_ok();
    if !there {
        println!("SKIPPED: {what}: no spin on this computer");
    }
    there
}

/// What to search a model for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Search {
    /// Runs that break a check, or deadlock.
    Checks,
    /// Runs that never end.
    Livelock,
}

/// `Ok`: every check holds; otherwise the output of verify/run.sh.
fn verify(search: Search, model: &str, defines: &[&str]) -> Result<(), String> {
    let options: &[&str] = if search == Search::Livelock { &["--livelock"] } else { &[] };
    let name = format!("pan-{model}{}{}", options.concat(), defines.concat());
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/verify/run.sh");
    let mut command = Command::new(run);
    command.args(options).arg(model).args(defines).env("VERIFY_DIR", &dir);
    let output = command.output().expect("verify/run.sh");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0) => {
            // A search that may have missed states says so.
            print!("{said}");
            Ok(())
        }
        Some(1) => Err(said.trim().to_string()),
        _ => panic!("{model} {defines:?}: {said}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

fn is_full() -> bool {
    std::env::var_os("UNSPIN_VERIFY_FULL").is_some()
}

fn all_keep(search: Search, sizes: &[&[&str]]) {
    let all = MODELS.iter().flat_map(|model| sizes.iter().map(move |size| (model, size)));
    let all: Vec<_> = all.collect();
    let keeps = |&(&(model, choices, _), size): &(&Model, &&[&str])| {
        let defines = [choices, *size].concat();
        let began = std::time::Instant::now();
        let verdict = verify(search, model, &defines);
        println!("{model} {defines:?}: {verdict:?} in {} s", began.elapsed().as_secs());
        assert_eq!(verdict, Ok(()), "{model} {defines:?}");
    };
    if is_full() {
        // Each may need all the memory it is allowed.
        all.iter().for_each(keeps);
    } else {
        in_parallel(&all, keeps);
    }
}

#[test]
fn every_lock_keeps_every_check() {
    if !have_spin("models of the locks") {
        return;
    }
    if is_full() {
        let sizes: &[&[&str]] = &[&[], &["-DTRY", "-DPREEMPTIONS=2"], &["-DROUNDS=2"], &["-DN=4"]];
        all_keep(Search::Checks, sizes);
    } else {
        all_keep(Search::Checks, &[&[], &["-DTRY"]]);
    }
}

/// A budget that is spent before each look must not send a waiter round and round.
#[test]
fn no_vcpu_goes_round_for_ever() {
    if !have_spin("models of the locks, for livelocks") {
        return;
    }
    let sizes: &[&[&str]] = if is_full() { &[&[], &["-DTRY"], &["-DROUNDS=2"]] } else { &[&[]] };
    all_keep(Search::Livelock, sizes);
}

#[test]
fn every_wrong_lock_is_rejected_by_its_check() {
    if have_spin("models of wrong locks") {
        all_are_rejected(MUTANTS);
    }
}

#[test]
fn no_vcpu_overstays_its_turn_or_sleeps_through_it() {
    if have_spin("the model of parked vCPUs") {
        assert_eq!(verify(Search::Checks, "park", &["-DTURNS=6"]), Ok(()));
        all_are_rejected(PARK_MUTANTS);
    }
}

fn all_are_rejected(mutants: &[Mutant]) {
    let wrong = Mutex::new(Vec::new());
    in_parallel(mutants, |(model, choices, mutant, check)| {
        let define = format!("-DM_{mutant}");
        let search = if *check == "livelock" { Search::Livelock } else { Search::Checks };
        let verdict = verify(search, model, &[choices, &[define.as_str()][..]].concat());
        if verdict != Err(format!("{model}: {check}")) {
            let said = format!("{model} {choices:?} {mutant}: {verdict:?}, not {check}");
            wrong.lock().unwrap().push(said);
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Which lock of pv_ticket's family, and which of preemptable's: what tells models of a file apart.
fn kind(choices: &[&str]) -> Vec<String> {
    let told = ["-DKICKS=1", "-DKICKS=2", "-DPV"];
    choices.iter().filter(|c| told.contains(c)).map(|c| c.to_string()).collect()
}

#[test]
fn every_lock_has_a_model_and_mutants() {
    for lock in LOCKS {
        let of_lock = MODELS.iter().find(|(_, _, locks)| locks.contains(&lock.name));
        let (model, choices, _) = of_lock.unwrap_or_else(|| panic!("{} has no model", lock.name));
        let wrong = MUTANTS.iter().filter(|(m, c, ..)| m == model && kind(c) == kind(choices));
        assert!(wrong.count() >= MUTANTS_MIN, "{}", lock.name);
    }
}

/// A mutation that no model reads would pass for a check that holds.
#[test]
fn every_mutation_is_in_its_model() {
    for (model, _, mutant, _) in MUTANTS.iter().chain(PARK_MUTANTS) {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../core/verify/{model}.pml"));
        let text = std::fs::read_to_string(path).unwrap();
        // A lock that does not look gives up in the step SPENT(), which all models share.
        let reads = |mark: &str| text.contains(mark);
        let shared = *mutant == "DOES_NOT_LOOK" && reads("SPENT(");
        assert!(shared || reads(&format!("M_{mutant}\n")) || reads(&format!("M_{mutant})")));
    }
}
