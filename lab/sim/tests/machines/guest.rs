// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work of guests besides spinning in locks: threads, mutexes, sequential work, interrupts, shared
//! data; and the effects of the machine under them (NJIT 2018, chapter 2).

use crate::common::{self, constant, run, step, sum_ns};
use unspin_scenario::plan::{Dist, Factor, LockKind, Op, Platform, Run, Step, Window};
use unspin_scenario::result::VmResult;
use unspin_sim::{simulate_setup, Host, Kernel, Setup, Simulated};

fn setup(run: &Run) -> Setup {
    let pcpus = run.vms.iter().flat_map(|vm| &vm.pin).max().map_or(4, |p| p + 1);
    Setup::new(&Host { housekeeping_ppm: 0, ..Host::server(pcpus, Kernel::V3_19) }, run)
}

fn simulated(setup: &Setup) -> Simulated {
    let made = simulate_setup(setup).unwrap();
    for (vm, of) in made.result.vm.iter().zip(&setup.vms) {
        let spent = sum_ns(&vm.attribution.unwrap());
        assert_eq!(spent, made.result.window_ns * u64::from(of.vcpus));
    }
    made
}

fn only(setup: &Setup) -> VmResult {
    simulated(setup).result.vm.remove(0)
}

fn units(vm: &VmResult) -> f64 {
    vm.units.iter().sum::<u64>() as f64
}

fn on(platform: Platform, mut run: Run) -> Setup {
    run.arm.platform = platform;
    setup(&run)
}

fn without(factor: Factor) -> Platform {
    Platform { without: vec![factor], ..Platform::default() }
}

fn physical() -> Platform {
    Platform { physical: true, ..Platform::default() }
}

fn near(a: f64, b: f64, part: f64) {
    assert!((a - b).abs() <= part * b.abs(), "{a} is not within {part} of {b}");
}

/// Works, then holds a mutex.
fn mutex(work: u32, hold: u32) -> Vec<Step> {
    vec![
        step(Op::Compute, constant(work), 0),
        step(Op::Mutex, constant(0), 0),
        step(Op::Compute, constant(hold), 0),
        step(Op::MutexUnlock, constant(0), 0),
    ]
}

/// Short phases of work between barriers that are waited for asleep.
fn rounds() -> Vec<Step> {
    let work = Dist::Uniform { min: 5_000, max: 15_000 };
    vec![step(Op::Compute, work, 0), step(Op::Barrier, constant(0), 0)]
}

/// Works for as long as it sleeps, 1 ms.
fn half_asleep() -> Vec<Step> {
    vec![step(Op::Compute, constant(2_400_000), 0), step(Op::Block, constant(1_000_000), 0)]
}

#[test]
fn who_waits_for_a_mutex_sleeps() {
    let vm = only(&setup(&run(1, 4, mutex(24_000, 240_000))));
    let spent = vm.attribution.unwrap();
    assert_eq!(spent.spin_holder_running_ns + spent.spin_holder_preempted_ns, 0);
    // One holds it at a time, 100 us each, and 10 us are its own.
    let at_most = 100e6 / 100e3;
    assert!(units(&vm) < at_most && units(&vm) > 0.8 * at_most, "{}", units(&vm));
    assert!(spent.halted_ns > 2 * 100_000_000, "two of four sleep at any time");
}

/// Who reads does so beside the others; a mutex has one at a time.
#[test]
fn readers_share_a_mutex() {
    let mut program = mutex(24_000, 240_000);
    program[1].op = Op::MutexRead;
    let vm = only(&setup(&run(1, 4, program.clone())));
    let alone = only(&setup(&run(1, 1, program.clone())));
    near(units(&vm), 4.0 * units(&alone), 0.02);
    // As many passes to read as to write, of one thread in turn: neither starves.
    program.extend(mutex(24_000, 240_000));
    let vm = only(&setup(&run(1, 4, program)));
    let writes = 100e6 / 100e3;
    assert!(units(&vm) < writes && units(&vm) > 0.3 * writes, "{}", units(&vm));
    let (least, most) = (vm.units.iter().min().unwrap(), vm.units.iter().max().unwrap());
    assert!(most - least <= 2 + most / 10, "{:?}", vm.units);
}

/// Readers interrupt each other's vCPUs at the same time, and all are answered.
#[test]
fn readers_shoot_down_together() {
    let with = |op| {
        let mut program = mutex(24_000, 2_400);
        program[1].op = op;
        program.insert(3, step(Op::Shootdown, constant(2_200), 0));
        units(&only(&setup(&run(1, 8, program))))
    };
    let (alone, together) = (with(Op::Mutex), with(Op::MutexRead));
    assert!(together > 1.5 * alone, "{together} together, {alone} alone");
}

#[test]
fn sequential_work_is_one_threads_or_each_ones_in_turn() {
    let program = |op| {
        vec![
            step(Op::Compute, constant(100_000), 0),
            step(op, constant(100_000), 0),
            step(Op::Barrier, constant(0), 0),
        ]
    };
    let useful = |op| only(&setup(&run(1, 4, program(op))));
    let (first, turn) = (useful(Op::ComputeFirst), useful(Op::ComputeRotating));
    near(first.cpu_ns[0] as f64, 2.0 * first.cpu_ns[1] as f64, 0.25);
    near(turn.cpu_ns[0] as f64, turn.cpu_ns[3] as f64, 0.05);
    near(units(&first), units(&turn), 0.05);
    // Of some 900 rounds each has 256 in turn; of some 90 the first has all.
    let moves = useful(Op::ComputeMoving);
    near(moves.cpu_ns[0] as f64, moves.cpu_ns[1] as f64, 0.15);
    near(units(&moves), units(&turn), 0.05);
    let long = |op| {
        let work = constant(1_000_000);
        let program =
            vec![step(Op::Compute, work, 0), step(op, work, 0), step(Op::Barrier, constant(0), 0)];
        only(&setup(&run(1, 4, program)))
    };
    assert_eq!(long(Op::ComputeMoving).cpu_ns, long(Op::ComputeFirst).cpu_ns);
}

/// One works while the others sleep, and none is woken without work.
#[test]
fn a_sequential_section_is_waited_for_once() {
    for op in [Op::SerialFirst, Op::SerialRotating] {
        for threads in [4, 8] {
            let program =
                vec![step(Op::Compute, constant(120_000), 0), step(op, constant(240_000), 0)];
            let mut setup = setup(&run(1, 4, program.clone()));
            setup.vms[0].threads = threads;
            let once = simulated(&setup);
            let vm = &once.result.vm[0];
            let round_ns = 50e3 * f64::from(threads) / 4.0 + 100e3;
            let rounds = units(vm) / f64::from(threads);
            // Two wake-ups in a round, of 2 to 10 us each.
            assert!(rounds <= 100e6 / round_ns, "{op:?}, {threads} threads: {rounds}");
            assert!(rounds > 0.7 * 100e6 / round_ns, "{op:?}, {threads} threads: {rounds}");
            let spent = vm.attribution.unwrap();
            assert_eq!(spent.spin_holder_running_ns + spent.spin_holder_preempted_ns, 0);
            let (first, last) = (vm.cpu_ns[0] as f64, vm.cpu_ns[3] as f64);
            if threads == 4 {
                let times = if op == Op::SerialFirst { 3.0 } else { 1.0 };
                near(first, times * last, 0.25);
            }
            let barrier = vec![
                program[0],
                step(Op::Barrier, constant(0), 0),
                step(Op::ComputeFirst, constant(240_000), 0),
                step(Op::Barrier, constant(0), 0),
            ];
            setup.vms[0].program = barrier;
            let twice = simulated(&setup);
            let exits = |s: &Simulated| s.apic_exits[0] as f64 / units(&s.result.vm[0]);
            assert!(exits(&once) < 0.8 * exits(&twice), "{op:?}, {threads} threads");
        }
    }
}

#[test]
fn threads_share_vcpus_fairly_and_fill_each_others_sleep() {
    let of = |threads, program: Vec<Step>| {
        let mut setup = setup(&run(1, 4, program));
        setup.vms[0].threads = threads;
        setup.vms[0].tick_hz = 1000;
        only(&setup)
    };
    let busy = vec![step(Op::Compute, constant(240_000), 0)];
    near(units(&of(8, busy.clone())), units(&of(4, busy.clone())), 0.03);
    near(units(&of(6, busy.clone())), units(&of(4, busy)), 0.03);
    let (one, two) = (of(4, half_asleep()), of(8, half_asleep()));
    // Two that share a vCPU tick by tick finish together, and sleep together for a while.
    assert!(units(&two) > 1.25 * units(&one), "{} {}", units(&two), units(&one));
    // Fewer threads than vCPUs leave the rest asleep.
    let few = of(2, half_asleep());
    near(units(&few), units(&one) / 2.0, 0.03);
}

#[test]
fn barriers_are_of_all_threads_whatever_vcpus_they_share() {
    for barrier in [Op::Barrier, Op::SpinBarrier] {
        let program = vec![step(Op::Compute, constant(24_000), 0), step(barrier, constant(0), 0)];
        let mut setup = setup(&run(1, 4, program));
        setup.vms[0].threads = 8;
        setup.vms[0].tick_hz = 1000;
        let vm = only(&setup);
        assert!(units(&vm) >= 8.0, "{barrier:?}: all arrive in the end");
        if barrier == Op::Barrier {
            // 8 x 10 us of work on 4 vCPUs a round.
            assert!(units(&vm) > 0.5 * 8.0 * 100e6 / 20e3, "{}", units(&vm));
        }
    }
}

#[test]
fn without_a_vmm_idling_costs_less_and_working_the_same() {
    let busy = vec![step(Op::Compute, constant(240_000), 0)];
    let vm = only(&setup(&run(1, 4, busy.clone())));
    let machine = only(&on(physical(), run(1, 4, busy)));
    near(units(&vm), units(&machine), 0.02);
    let waits = rounds();
    let vm = only(&setup(&run(1, 4, waits.clone())));
    let machine = only(&on(physical(), run(1, 4, waits.clone())));
    let polling = only(&on(without(Factor::IdleSwitch), run(1, 4, waits)));
    assert!(units(&machine) > 1.2 * units(&vm), "{} {}", units(&machine), units(&vm));
    assert!(units(&polling) > 1.1 * units(&vm), "{} {}", units(&polling), units(&vm));
    let idle = |vm: &VmResult| vm.attribution.unwrap().factors.unwrap().idle_switch_ns;
    assert_eq!(idle(&polling), 0);
    assert!(idle(&vm) > 0);
    let two = on(physical(), run(2, 4, half_asleep()));
    common::refused(&two, "without a VMM");
}

/// One works and interrupts, the others sleep 1 ms at a time: a lazy one wakes each once a sleep.
#[test]
fn who_sleeps_lazily_is_woken_once_to_answer() {
    let of = |op| {
        let program = vec![
            step(Op::ComputeFirst, constant(24_000), 0),
            step(op, constant(0), 0),
            step(Op::ComputeFirst, constant(24_000), 0),
            step(op, constant(0), 0),
            Step { permille: 500, ..step(Op::Block, constant(2_400_000), 0) },
        ];
        let made = simulated(&setup(&run(1, 4, program)));
        let units = units(&made.result.vm[0]);
        (units, made.apic_exits[0] as f64 / units)
    };
    let ((awake_units, awake), (lazy_units, lazy)) = (of(Op::Shootdown), of(Op::ShootdownLazy));
    assert!(lazy > 1.1 * awake, "{lazy} exits a unit, {awake} where sleepers are left alone");
    assert!(lazy < 4.0 * awake, "{lazy} exits a unit: nobody is woken again before it has run");
    near(lazy_units, awake_units, 0.3);
}

#[test]
fn loop_detection_does_not_see_user_space() {
    let program =
        vec![step(Op::Compute, constant(100_000), 0), step(Op::UserBarrier, constant(0), 0)];
    let vms = |platform| simulated(&on(platform, run(2, 4, program.clone()))).result.vm;
    let (user, seen) = (vms(Platform::default()), vms(without(Factor::UserSpin)));
    let exits = |vms: &[VmResult]| common::total(vms, |m| m.ple_exits);
    assert_eq!(exits(&user), 0);
    assert!(exits(&seen) > 0);
    let all = |vms: &[VmResult]| vms.iter().map(units).sum::<f64>();
    assert!(all(&seen) > 1.1 * all(&user), "{} {}", all(&seen), all(&user));
    let spent = user[0].attribution.unwrap();
    let spun = spent.spin_holder_running_ns + spent.spin_holder_preempted_ns;
    assert_eq!(spent.factors.unwrap().user_spin_ns, spun);
}

/// PARSEC's barrier: threads spin at it in user space for a time, then sleep.
#[test]
fn who_has_spun_in_user_space_for_long_enough_sleeps() {
    // One has ten times as much to do; a turn of the loop is 16 cycles.
    let of = |pauses| {
        let program = vec![
            step(Op::Compute, constant(24_000), 0),
            step(Op::ComputeFirst, constant(216_000), 0),
            step(Op::UserBarrier, constant(pauses), 0),
        ];
        simulated(&on(Platform::default(), run(1, 4, program))).result.vm.remove(0)
    };
    let (short, long) = (of(3000), of(0));
    let spun_ns = |vm: &VmResult| {
        let spent = vm.attribution.unwrap();
        let spun = spent.spin_holder_running_ns + spent.spin_holder_preempted_ns;
        assert_eq!(spent.factors.unwrap().user_spin_ns, spun);
        spun as f64 / units(vm)
    };
    // Three of four wait for 90 us, or for 20 us awake.
    near(spun_ns(&short), 0.75 * 20_000.0, 0.1);
    near(spun_ns(&long), 0.75 * 90_000.0, 0.1);
    let halted = |vm: &VmResult| vm.attribution.unwrap().halted_ns;
    assert!(halted(&short) > 0 && halted(&long) == 0);
    assert_eq!(short.module.as_ref().unwrap().ple_exits, 0);
}

/// Sleepers of a condition variable start one after the other, those of a barrier together; all
/// start, and none starts twice.
#[test]
fn sleepers_of_a_condition_variable_wake_each_other_in_turn() {
    let of = |op, n, first, platform: &Platform| {
        let program = vec![
            step(Op::Compute, constant(24_000), 0),
            step(Op::ComputeFirst, constant(first), 0),
            step(op, constant(0), 0),
        ];
        let vm = simulated(&on(platform.clone(), run(1, n, program))).result.vm.remove(0);
        let (least, most) = (vm.units.iter().min().unwrap(), vm.units.iter().max().unwrap());
        // One ahead where the window begins, another where it ends.
        assert!(most - least <= 2, "{:?}", vm.units);
        f64::from(n) / units(&vm)
    };
    let lost = |n, first, platform| {
        of(Op::CondBarrier, n, first, platform) / of(Op::Barrier, n, first, platform) - 1.0
    };
    let halting = Platform::default();
    let (few, many) = (lost(2, 24_000, &halting), lost(16, 24_000, &halting));
    assert!(few.abs() < 0.02, "two threads have one sleeper: {few}");
    assert!(many > 0.1, "sixteen have fifteen: {many}");
    // So do those whose vCPUs poll instead of halting; each turn is shorter.
    let polling = Platform { without: vec![Factor::IdleSwitch], ..halting };
    let polled = lost(16, 0, &polling);
    assert!(polled > 0.01 && polled < many, "{polled} polling, {many} halting");
}

#[test]
fn interrupts_to_all_wait_for_those_off_their_pcpus() {
    let program =
        vec![step(Op::Compute, constant(100_000), 0), step(Op::Shootdown, constant(0), 0)];
    let vms = |n, platform| {
        let mut run = run(n, 4, program.clone());
        run.arm.window = Window::Off;
        simulated(&on(platform, run))
    };
    let (one, two) = (vms(1, Platform::default()), vms(2, Platform::default()));
    let preempted = |s: &Simulated| s.result.vm[0].attribution.unwrap().spin_holder_preempted_ns;
    assert_eq!(preempted(&one), 0);
    assert!(preempted(&two) > 10_000_000, "{}", preempted(&two));
    // A write to send, one to end the interrupt: the latter needs no exit with APICv.
    let apicv = vms(1, Platform { apicv: true, ..Platform::default() });
    let per_unit = |s: &Simulated| s.apic_exits[0] as f64 / units(&s.result.vm[0]);
    near(per_unit(&one), 6.0, 0.05);
    near(per_unit(&apicv), 3.0, 0.05);
    let ipi = |s: &Simulated| s.result.vm[0].attribution.unwrap().factors.unwrap().ipi_ns;
    assert!(ipi(&vms(1, without(Factor::Ipi))) < ipi(&one) / 3);
}

/// Each interrupt is an exit; the last sibling answers when it has taken its own and handled it.
#[test]
fn who_handles_an_interrupt_answers_after_it() {
    let of = |handler, vms| {
        let shootdown = step(Op::Shootdown, constant(handler), 0);
        let mut run = run(vms, 4, vec![step(Op::Compute, constant(1_000_000), 0), shootdown]);
        run.arm.window = Window::Off;
        simulated(&setup(&run))
    };
    let spun_us = |s: &Simulated| {
        let spent = s.result.vm[0].attribution.unwrap();
        let spun = spent.spin_holder_running_ns + spent.spin_holder_preempted_ns;
        spun as f64 / 1000.0 / units(&s.result.vm[0])
    };
    let (short, long) = (of(1, 1), of(24_000, 1));
    near(short.apic_exits[0] as f64 / units(&short.result.vm[0]), 6.0, 0.1);
    assert!((0.8..2.0).contains(&spun_us(&short)), "{} us", spun_us(&short));
    near(spun_us(&long) - spun_us(&short), 10.0, 0.2);
    let preempted = |s: &Simulated| s.result.vm[0].attribution.unwrap().spin_holder_preempted_ns;
    assert_eq!(preempted(&long), 0);
    assert!(preempted(&of(1, 2)) > 10_000_000, "{}", preempted(&of(1, 2)));
}

/// Two take turns with a lock: who asks the other for an answer waits until that has let it go.
#[test]
fn nobody_answers_while_it_holds_a_spin_lock() {
    let spun = |handler| {
        let program = vec![
            step(Op::Compute, constant(240_000), 0),
            step(Op::Lock, constant(0), 0),
            step(Op::Critical, constant(240_000), 0),
            step(Op::Unlock, constant(0), 0),
            step(Op::Shootdown, constant(handler), 0),
        ];
        let vm = simulated(&setup(&run(1, 2, program))).result.vm[0].clone();
        vm.attribution.unwrap().spin_holder_running_ns as f64 / 1000.0 / units(&vm)
    };
    let (at_once, held) = (spun(0), spun(1));
    assert!(held > at_once + 20.0, "{held} us a unit, {at_once} where all answer at once");
}

/// Who halts waiting for a lock does not idle: it has the program's memory and must answer.
#[test]
fn who_halts_in_a_lock_is_interrupted_too() {
    let exits = |kind| {
        let program = vec![
            step(Op::Lock, constant(0), 0),
            step(Op::Critical, constant(200_000), 0),
            step(Op::Unlock, constant(0), 0),
            step(Op::Shootdown, constant(0), 0),
        ];
        let mut setup = setup(&run(1, 4, program));
        setup.vms[0].lock.kind = kind;
        let made = simulated(&setup);
        (made.apic_exits[0] as f64 / units(&made.result.vm[0]), made.locks[0].halts)
    };
    let ((spinning, none), (halted, halts)) = (exits(LockKind::Ticket), exits(LockKind::PvTicket));
    assert!(none == 0 && halts > 100, "{none} {halts}");
    assert!(halted > 0.9 * spinning, "{halted} exits a unit, {spinning} where all spin");
}

/// Halts of idle vCPUs are counted apart from those in locks.
#[test]
fn who_has_nothing_to_do_halts_too() {
    let halts = |program: Vec<Step>, platform| {
        let made = simulated(&on(platform, run(1, 4, program)));
        (made.locks[0], units(&made.result.vm[0]))
    };
    let (asleep, units) = halts(half_asleep(), Platform::default());
    near(asleep.idle_halts as f64 / units, 1.0, 0.05);
    assert_eq!(asleep.halts, 0);
    assert_eq!(halts(half_asleep(), without(Factor::IdleSwitch)).0.idle_halts, 0, "it polls");
    let (at_barrier, units) = halts(rounds(), Platform::default());
    assert!(at_barrier.idle_halts as f64 > 0.5 * units, "{} {units}", at_barrier.idle_halts);
}

/// The tick of a vCPU that halts for a lock continues: it checks the lock, and halts again.
#[test]
fn a_tick_ends_a_halt_in_a_lock() {
    let halts_a_unit = |tick_hz| {
        let program = vec![
            step(Op::Lock, constant(0), 0),
            step(Op::Critical, constant(12_000_000), 0),
            step(Op::Unlock, constant(0), 0),
        ];
        let mut setup = setup(&run(1, 2, program));
        setup.vms[0].lock.kind = LockKind::PvTicket;
        setup.vms[0].tick_hz = tick_hz;
        let made = simulated(&setup);
        made.locks[0].halts as f64 / units(&made.result.vm[0])
    };
    // Held for 5 ms at a time.
    near(halts_a_unit(0), 1.0, 0.05);
    near(halts_a_unit(1000), 6.0, 0.15);
}

#[test]
fn data_from_another_cache_comes_late() {
    let program = vec![step(Op::Compute, constant(10_000), 0), step(Op::Share, constant(100), 0)];
    let on_pcpus = |pin: [u32; 4], platform| {
        let mut run = run(1, 4, program.clone());
        run.vms[0].pin = pin.to_vec();
        run.arm.platform = platform;
        let host =
            Host { llc_pcpus: Some(4), housekeeping_ppm: 0, ..Host::server(8, Kernel::V3_19) };
        only(&Setup::new(&host, &run))
    };
    let near_by = on_pcpus([0, 1, 2, 3], Platform::default());
    let apart = on_pcpus([0, 4, 1, 5], Platform::default());
    let unaware = on_pcpus([0, 4, 1, 5], without(Factor::Cache));
    assert_eq!(units(&near_by), units(&unaware));
    // 100 lines cost 4,500 cycles, or 25,000 from the other cache, beside 10,000 of work.
    near(units(&near_by) / units(&apart), 35.0 / 14.5, 0.03);
    let far = |vm: &VmResult| vm.attribution.unwrap().factors.unwrap().far_data_ns as f64;
    assert_eq!(far(&near_by), 0.0);
    near(far(&apart), 4e8 * 20.5 / 35.0, 0.03);
}

#[test]
fn kvm_may_poll_before_it_gives_a_pcpu_away() {
    let waits = rounds();
    let platform = Platform { halt_poll_us: 200, ..Platform::default() };
    let usual = only(&setup(&run(1, 4, waits.clone())));
    let polls = only(&on(platform, run(1, 4, waits)));
    assert!(units(&polls) > 1.05 * units(&usual), "{} {}", units(&polls), units(&usual));
    assert!(polls.attribution.unwrap().halted_ns < usual.attribution.unwrap().halted_ns);
}

#[test]
fn impossible_guests_are_refused() {
    let refused = |change: fn(&mut Setup), why: &str| {
        let mut setup = setup(&run(1, 4, half_asleep()));
        change(&mut setup);
        common::refused(&setup, why);
    };
    refused(|s| s.vms[0].threads = 0, "0 threads; a VM has 1 to 1024");
    refused(|s| s.vms[0].tick_hz = 1_000_000, "ticks a second");
    refused(|s| s.vms[0].program.push(step(Op::Mutex, constant(0), 3)), "never released");
}
