// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks with the papers' own thresholds, and what halting costs on processors that idle deeply.

use crate::common::{constant, contended, run, step, sum_ns};
use unspin_scenario::plan::{LockKind, Op, Run, Step};
use unspin_sim::{simulate_setup, Budgets, Host, IdleState, Kernel, Setup, Simulated};

const VCPUS: u32 = 4;
const WINDOW_MS: u64 = 1000;

fn made(lock: LockKind, program: Vec<Step>, change: impl FnOnce(&mut Setup)) -> Simulated {
    let run = run(1, VCPUS, program).with(|vm| vm.lock = lock);
    let run = Run { window_ms: WINDOW_MS, ..run };
    let mut setup = Setup::new(&Host::server(VCPUS, Kernel::V3_19), &run);
    change(&mut setup);
    simulate_setup(&setup).unwrap()
}

fn units(made: &Simulated) -> f64 {
    made.result.vm[0].units.iter().sum::<u64>() as f64
}

/// Holds for 100 us: longer than the headers take 2^15 turns for, shorter than they take.
#[test]
fn a_turn_of_the_waiting_loop_takes_what_the_host_says() {
    let halts = |budgets: Budgets| {
        let program = contended(240_000, 240_000);
        made(LockKind::PvTicket, program, |s| s.budgets = budgets).locks[0].halts
    };
    let (headers, by_turns) =
        (Budgets::default(), Budgets { by_turns: true, ..Budgets::default() });
    assert!(halts(headers) > 5000);
    // Of three waiters the last may wait for longer than 218 us.
    assert!(halts(by_turns) < halts(headers) / 2);
    let eager = Budgets { pv_ticket_turns: Some(2048), ..by_turns };
    assert!(halts(eager) > 5000);
}

#[test]
fn a_queued_lock_in_order_is_overtaken_by_nobody() {
    let spread = |in_order| {
        let made = made(LockKind::PvQueued, contended(100, 20_000), |s| {
            s.budgets.pv_queued_in_order = in_order;
        });
        let counts = &made.result.vm[0].acquisitions;
        counts.iter().max().unwrap() - counts.iter().min().unwrap()
    };
    assert!(spread(true) <= 1);
    assert!(spread(false) > 1, "nobody overtakes: the test sees nothing");
}

#[test]
fn a_pcpu_that_idles_deeper_wakes_later() {
    // 1 ms asleep, 0.1 ms awake.
    let program =
        vec![step(Op::Compute, constant(240_000), 0), step(Op::Block, constant(1_000_000), 0)];
    let ms_a_unit = |states: &'static [IdleState]| {
        let made = made(LockKind::Ticket, program.clone(), |s| s.host.idle_states = states);
        let spent = made.result.vm[0].attribution.unwrap();
        assert_eq!(sum_ns(&spent), u64::from(VCPUS) * made.result.window_ns);
        (u64::from(VCPUS) * WINDOW_MS) as f64 / units(&made)
    };
    let free = ms_a_unit(&[]);
    let nehalem = &IdleState::NEHALEM;
    for (states, exit_ms) in [(&nehalem[..1], 0.003), (&nehalem[..3], 0.02), (nehalem, 0.2)] {
        let more = ms_a_unit(states) - free;
        assert!((more / exit_ms - 1.0).abs() < 0.25, "{more} ms for {exit_ms}");
    }
}

#[test]
fn who_never_halts_pays_for_no_idle_state() {
    let work = |states: &'static [IdleState]| {
        units(&made(LockKind::Ticket, contended(20_000, 1_000), |s| s.host.idle_states = states))
    };
    let (free, deep) = (work(&[]), work(&IdleState::NEHALEM));
    // But to come up: one wake-up.
    assert!((deep / free - 1.0).abs() < 0.01, "{deep} {free}");
}
