// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler of `unspin schedule` decides from random states, and its trace is replayed. Every decision must be the
//! same. The replay must find faults that are injected into the scheduler.

#[path = "../../policy/tests/common/faulty.rs"]
mod faulty;

use faulty::Fault;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::cell::Cell;
use unspin_replay::schedule::{replay, Tally};
use unspin_uapi::schedule_trace::{Begin, Line, SCHEMA, TRACE};

const CPUS: u32 = 4;
const NOBODY: u32 = u32::MAX;
const ROOM: u64 = 1 << 16;
const TURN_NS: u64 = 6_000_000;

struct Scheduler {
    begin_state: unsafe extern "C" fn(u32, u32, u64),
    set_vm: unsafe extern "C" fn(u32, u64, u32, u64, u64, u64),
    set_vcpu: unsafe extern "C" fn(u32, u32, u64, i64, u32, u32),
    next_on: unsafe extern "C" fn(u32, u32, u64) -> u32,
    sibling_for: unsafe extern "C" fn(u32, u32, u64) -> u32,
    plan_at: unsafe extern "C" fn(u64),
    told_so_far: unsafe extern "C" fn(*mut u8) -> u64,
    lost_so_far: unsafe extern "C" fn() -> u64,
    _library: libloading::Library,
}

fn build(name: &str, fault: Option<Fault>) -> Scheduler {
    let library = faulty::library(name, "tests/traced.c", &["-O1"], fault);
    // SAFETY: the functions have these types, and the library is kept.
    unsafe {
        Scheduler {
            begin_state: *library.get(b"begin_state\0").unwrap(),
            set_vm: *library.get(b"set_vm\0").unwrap(),
            set_vcpu: *library.get(b"set_vcpu\0").unwrap(),
            next_on: *library.get(b"next_on\0").unwrap(),
            sibling_for: *library.get(b"sibling_for\0").unwrap(),
            plan_at: *library.get(b"plan_at\0").unwrap(),
            told_so_far: *library.get(b"told_so_far\0").unwrap(),
            lost_so_far: *library.get(b"lost_so_far\0").unwrap(),
            _library: library,
        }
    }
}

/// Virtual time, owed CPU time, the only CPU that it may use, and its category.
type Vcpu = (u64, i64, Option<u32>, u32);
/// Virtual time, whether it is a gang, which vCPUs wait, which run, and which are owed time; its vCPUs.
type Vm = (u64, bool, u64, u64, u64, Vec<Vcpu>);

#[derive(Debug, Clone)]
struct State {
    vms: Vec<Vm>,
    vnow: u64,
    /// A CPU, who ran there, and who spins.
    cpu: u32,
    before: Option<(u32, u32)>,
    spins: (u32, u32),
    but: u64,
}

fn states() -> impl Strategy<Value = State> {
    // Near each other, so that equal times and both sides of vnow are not rare.
    let vt = || prop_oneof![3 => 99..103u64, 1 => 0..200u64, 1 => any::<u64>()];
    let owed = prop_oneof![Just(0i64), Just(2 * TURN_NS as i64)];
    let category = prop_oneof![2 => Just(1u32), 1 => 0..5u32];
    let vcpu = (vt(), owed, proptest::option::of(0..CPUS), category);
    let vm = (vt(), any::<bool>(), 0..16u64, 0..16u64, 0..16u64, vec(vcpu, 4));
    let unit = || (0..8u32, prop_oneof![0..4u32, Just(63)]);
    let before = proptest::option::of(unit());
    let who = (0..CPUS, before, (0..2u32, 0..4u32), 0..16u64);
    (vec(vm, 2..=8), vt(), who).prop_map(|(vms, vnow, (cpu, before, spins, but))| State {
        vms,
        vnow,
        cpu,
        before,
        spins,
        but,
    })
}

fn id((vm, unit): (u32, u32)) -> u32 {
    vm << 6 | unit
}

/// Makes 3 decisions from a state: which unit runs next, which sibling gets a spinning vCPU's CPU, and a plan. Returns
/// the results of the first two, and the trace of all.
fn decide(scheduler: &Scheduler, state: &State, room: u64) -> (u32, u32, Vec<Line>) {
    // SAFETY: functions of numbers, all in their bounds; there is room for what is told.
    unsafe {
        (scheduler.begin_state)(state.vms.len() as u32, CPUS, room);
        for (vm, (vt, gang, waits, runs, owed, vcpus)) in (0..).zip(&state.vms) {
            (scheduler.set_vm)(vm, *vt, u32::from(*gang), *waits & !runs, *runs, *owed);
            for (unit, (vt, owed, only, category)) in (0..).zip(vcpus) {
                let only = only.unwrap_or(NOBODY);
                (scheduler.set_vcpu)(vm, unit, *vt, *owed, only, *category);
            }
        }
        let before = state.before.map_or(NOBODY, id);
        let next = (scheduler.next_on)(state.cpu, before, state.vnow);
        let sibling = (scheduler.sibling_for)(state.cpu, id(state.spins), state.but);
        (scheduler.plan_at)(TURN_NS);
        let mut bytes = vec![0; ROOM as usize];
        let length = (scheduler.told_so_far)(bytes.as_mut_ptr());
        let mut rest = &bytes[..length as usize];
        let mut lines = Vec::new();
        while let Some((size, after)) = rest.split_first_chunk() {
            let (of, after) = after.split_at(u64::from_ne_bytes(*size) as usize);
            lines.push(unspin_schedule::line(of).expect("a decision of a known kind"));
            rest = after;
        }
        (next, sibling, lines)
    }
}

/// The trace of these lines.
fn trace(lines: &[Line]) -> String {
    let begin = Begin {
        trace: TRACE.into(),
        schema: SCHEMA,
        version: "0".into(),
        kernel: "0".into(),
        cpus: "0-3".into(),
        turn_us: TURN_NS / 1000,
    };
    let mut text = serde_json::to_string(&begin).unwrap() + "\n";
    for line in lines {
        text += &(serde_json::to_string(line).unwrap() + "\n");
    }
    text
}

fn replayed(lines: &[Line]) -> Tally {
    let mut tally = Tally::default();
    replay(&trace(lines), &mut tally).unwrap_or_else(|e| panic!("{e:#}"));
    tally
}

/// Calls `test` with random states, which are the same in every run.
fn for_states(cases: u32, test: impl Fn(State)) {
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let run = TestRunner::new_with_rng(config, rng).run(&states(), |state| {
        test(state);
        Ok(())
    });
    run.unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn every_decision_comes_out_the_same() {
    let scheduler = build("traced", None);
    let (nexts, turns, yields) = (Cell::new(0), Cell::new(0), Cell::new(0));
    for_states(1500, |state| {
        let (next, sibling, lines) = decide(&scheduler, &state, ROOM);
        let tally = replayed(&lines);
        assert_eq!((tally.different, tally.first.as_deref()), (0, None), "{state:?}");
        assert_eq!(tally.decisions(), lines.len() as u64);
        for line in &lines {
            match line {
                Line::Next(of) => {
                    let is = of.is.map_or(NOBODY, |(vm, unit)| id((vm.into(), unit.into())));
                    assert_eq!((is, of.cpu, of.vnow), (next, state.cpu, state.vnow));
                }
                Line::Yield(of) => assert_eq!(u32::try_from(of.pick).unwrap_or(NOBODY), sibling),
                Line::Turn(of) => assert!(of.left <= CPUS && of.is.is_some(), "{of:?}"),
                _ => panic!("{line:?}"),
            }
        }
        nexts.set(nexts.get() + tally.next);
        turns.set(turns.get() + tally.turns);
        yields.set(yields.get() + tally.yields);
    });
    let found = (nexts.get(), turns.get(), yields.get());
    assert!(found.0 > 1000 && found.1 > 2000 && found.2 > 1000, "{found:?}");
}

#[test]
fn what_finds_no_room_is_counted() {
    let scheduler = build("traced-full", None);
    let (kept, missing) = (Cell::new(0), Cell::new(0));
    for_states(200, |state| {
        let all = decide(&scheduler, &state, ROOM).2;
        let few = decide(&scheduler, &state, 100).2;
        // SAFETY: it has no arguments.
        let lost = unsafe { (scheduler.lost_so_far)() };
        assert_eq!(few.len() as u64 + lost, all.len() as u64);
        kept.set(kept.get() + few.len());
        missing.set(missing.get() + lost);
    });
    assert!(kept.get() > 0 && missing.get() > 0, "{kept:?} {missing:?}");
}

const MUTANTS: [Fault; 14] = [
    ("decide.h", "if (key >= first->key)", "if (key > first->key)"),
    ("decide.h", "if (key >= first->key)", "if (first->id != NOBODY)"),
    ("decide.h", "return key | LAST;", "return key;"),
    ("decide.h", "is_owed ? KEY_FIRST : beside(vt, vnow);", "beside(vt, vnow);"),
    ("decide.h", "vt - vnow + (LAST >> 1);", "vnow - vt + (LAST >> 1);"),
    ("decide.h", "return is_owed ? KEY_FIRST : vt;", "return vt;"),
    ("hvs.c", "rank == best->rank && time < best->time", "rank == best->rank && time > best->time"),
    ("hvs.c", "return running < missing ?", "return running <= missing ?"),
    ("choose.h", "key = next_key(vt, base,", "key = next_key(v->unit_vt, base,"),
    ("choose.h", "key = behind(key);", ";"),
    ("owed.h", "turn_key(vt, comes_first), vm);", "turn_key(v->unit_vt, comes_first), vm);"),
    ("choose.h", "vt, id, comes_first, 1);", "vt, id, 0, 1);"),
    ("trace.h", "wish->vt = vt;", "wish->vt = 0;"),
    ("yields.h", "picked, all, count, HVS_FLAGS);", "picked, all, count, 0);"),
];

#[test]
fn a_fault_of_the_scheduler_is_found() {
    for (number, fault) in MUTANTS.into_iter().enumerate() {
        let mutant = build(&format!("traced-mutant-{number}"), Some(fault));
        let different = Cell::new(0);
        for_states(2000, |state| {
            if different.get() > 0 {
                return;
            }
            let lines = decide(&mutant, &state, ROOM).2;
            different.set(different.get() + replayed(&lines).different);
        });
        assert!(different.get() > 0, "{fault:?} is not found");
    }
}
