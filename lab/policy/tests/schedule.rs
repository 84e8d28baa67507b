// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decisions of the scheduler of `unspin schedule` (host/schedule/bpf), compiled for this computer. Injected faults must
//! fail the tests.

mod common;
#[path = "common/faulty.rs"]
mod faulty;

use common::property;
use faulty::Fault;
use proptest::collection::vec;
use proptest::prelude::*;
use std::panic::catch_unwind;

const MS: u64 = 1_000_000;
const TURN_NS: u64 = 6 * MS;
/// AHEAD_TURNS of owed.h.
const AHEAD_TURNS: u64 = 4;

struct Scheduler {
    start: unsafe extern "C" fn(u64),
    set_unit: unsafe extern "C" fn(u32, u64, u32, u32),
    vt_of: unsafe extern "C" fn(u32) -> u64,
    close_one_gap: unsafe extern "C" fn(),
    takes: unsafe extern "C" fn(u32, u32, u32, u32, *const u64) -> u32,
    is_held_after_a_plan: unsafe extern "C" fn() -> u32,
    _library: libloading::Library,
}

fn build(name: &str, fault: Option<Fault>) -> Scheduler {
    let flags = ["-ffreestanding", "-O2"];
    let library = faulty::library(name, "tests/c/schedule.c", &flags, fault);
    // SAFETY: the functions have these types, and the library is kept.
    unsafe {
        Scheduler {
            start: *library.get(b"start\0").unwrap(),
            set_unit: *library.get(b"set_unit\0").unwrap(),
            vt_of: *library.get(b"vt_of\0").unwrap(),
            close_one_gap: *library.get(b"close_one_gap\0").unwrap(),
            takes: *library.get(b"takes\0").unwrap(),
            is_held_after_a_plan: *library.get(b"is_held_after_a_plan\0").unwrap(),
            _library: library,
        }
    }
}

/// Virtual time, weight, and whether it is ready.
type Unit = (u64, u32, bool);

/// The virtual times after as many plans as there are units.
fn closed(scheduler: &Scheduler, units: &[Unit]) -> Vec<u64> {
    // SAFETY: functions of numbers, and there are fewer than 64 units.
    unsafe {
        (scheduler.start)(TURN_NS);
        for (at, (vt, weight, is_ready)) in (0..).zip(units) {
            (scheduler.set_unit)(at, *vt, *weight, u32::from(*is_ready));
        }
        for _ in units {
            (scheduler.close_one_gap)();
        }
        (0..).zip(units).map(|(at, _)| (scheduler.vt_of)(at)).collect()
    }
}

fn long_gaps_close(scheduler: &Scheduler) {
    let vt = prop_oneof![0..100 * MS, 0..10_000 * MS];
    let weight = prop_oneof![Just(100u32), Just(33), Just(300)];
    let unit = (vt, weight, proptest::bool::weighted(0.8));
    property(2_000, vec(unit, 2..=12), |units| {
        let after = closed(scheduler, &units);
        let mut order: Vec<usize> = (0..units.len()).filter(|at| units[*at].2).collect();
        order.sort_by_key(|at| units[*at].0);
        let stay = (0..units.len()).filter(|at| !units[*at].2).chain(order.first().copied());
        for at in stay {
            assert_eq!(after[at], units[at].0, "unit {at}");
        }
        for pair in order.windows(2) {
            let before = units[pair[1]].0 - units[pair[0]].0;
            let now = after[pair[1]].checked_sub(after[pair[0]]).expect("their order stays");
            let most = AHEAD_TURNS * (TURN_NS * 100 / u64::from(units[pair[1]].1));
            assert!(now <= most.max(AHEAD_TURNS * TURN_NS), "{now} between {pair:?}");
            assert!(now == before || now == most, "{before} became {now} between {pair:?}");
        }
    });
}

fn who_comes_first_keeps_its_cpu(scheduler: &Scheduler) {
    for bits in 0..16 {
        let [is_held, waits, is_owed, runs] = [0, 1, 2, 3].map(|bit| (bits >> bit) & 1);
        for (held_vt, running_vt) in [(4, 4), (4, 6), (6, 4), (6, 6), (5, 5)] {
            let vts = [5, held_vt, running_vt];
            // SAFETY: it reads three numbers.
            let takes = unsafe { (scheduler.takes)(is_held, waits, is_owed, runs, vts.as_ptr()) };
            let waits_first = is_held & waits != 0 && (is_owed != 0 || held_vt < 5);
            let runs_first = runs != 0 && running_vt < 5;
            let is_free = !waits_first && !runs_first;
            assert_eq!(takes != 0, is_free, "{is_held} {waits} {is_owed} {runs} {vts:?}");
        }
    }
    // SAFETY: it has no arguments.
    assert_eq!(unsafe { (scheduler.is_held_after_a_plan)() }, 0);
}

#[test]
fn no_unit_is_far_ahead_of_the_sibling_before_it() {
    long_gaps_close(&build("schedule-gaps", None));
}

#[test]
fn a_gang_claims_no_cpu_of_who_comes_before_it() {
    who_comes_first_keeps_its_cpu(&build("schedule-claims", None));
}

const MUTANTS: [Fault; 13] = [
    ("owed.h", "if (above - below > most) {", "if (0) {"),
    ("owed.h", "u->vt >= from)", "u->vt > from)"),
    ("owed.h", "above - below - most);", "above - below);"),
    ("owed.h", "from = above;", "break;"),
    ("owed.h", "AHEAD_TURNS * among_siblings(unit_of(id_of(vm, first)), config.turn_ns)", "step"),
    ("wake.h", "} else if (is_of_earlier(c, id)) {", "} else if (0) {"),
    ("wake.h", "vm_of(held)->waits & bit(unit_part(held)) && ", ""),
    ("wake.h", "return is_owed(id) || vm_of(id)", "return vm_of(id)"),
    ("wake.h", "&& is_before(held, id);", "&& 1;"),
    ("wake.h", "vm_of(id)->vt < vm_of(other)->vt", "vm_of(id)->vt <= vm_of(other)->vt"),
    ("place.h", "cpus[bound(cpu)].held = id;", ""),
    ("plan.h", "c->next = c->held = NOBODY;", "c->next = NOBODY;"),
    ("plan.h", "return most > least + AHEAD_TURNS * config.turn_ns;", "return 0;"),
];

#[test]
fn each_mutant_is_rejected() {
    common::SHRINK.set(false);
    for (number, fault) in MUTANTS.into_iter().enumerate() {
        let mutant = build(&format!("schedule-mutant-{number}"), Some(fault));
        let outcome = catch_unwind(|| {
            long_gaps_close(&mutant);
            who_comes_first_keeps_its_cpu(&mutant);
        });
        assert!(outcome.is_err(), "{fault:?} passes");
    }
}
