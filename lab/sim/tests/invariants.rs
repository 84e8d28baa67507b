// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random machines: whatever they are, no time is lost, nothing runs in two places, and the same
//! machine does the same again. The model's own assertions are on as well.
//!
//! `UNSPIN_CASES` says how many (1000).

mod common;

use common::{arm, constant, run, step, sum_ns, turns};
use proptest::prelude::*;
use unspin_scenario::module;
use unspin_scenario::plan::{
    ApleParams, Asym, CgroupLayout, Coscheduling, Dist, Factor, LockKind, Op, Platform, Step,
    Window, YieldTo,
};
use unspin_sim::{simulate_setup, Budgets, Host, IdleState, Kernel, Setup};

fn cases() -> u32 {
    std::env::var("UNSPIN_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1000)
}

fn dist() -> impl Strategy<Value = Dist> {
    prop_oneof![
        (1..5000u32).prop_map(|iterations| Dist::Const { iterations }),
        (0..2000u32, 1..4000u32).prop_map(|(min, more)| Dist::Uniform { min, max: min + more }),
        (1..4000u32).prop_map(|mean| Dist::Exp { mean, max: 0 }),
    ]
}

fn permille() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1000), 1..1000u32]
}

/// Some steps that make sense wherever they stand.
fn piece() -> impl Strategy<Value = Vec<Step>> {
    let section = |lock: u32| {
        (dist(), permille()).prop_map(move |(hold, permille)| {
            vec![
                Step { permille, ..step(Op::Lock, constant(0), lock) },
                step(Op::Critical, hold, 0),
                step(Op::Unlock, constant(0), lock),
            ]
        })
    };
    let nested = (dist(), dist()).prop_map(|(outer, inner)| {
        vec![
            step(Op::Lock, constant(0), 1),
            step(Op::Critical, outer, 0),
            step(Op::Lock, constant(0), 2),
            step(Op::Critical, inner, 0),
            step(Op::Unlock, constant(0), 2),
            step(Op::Unlock, constant(0), 1),
        ]
    });
    let one = |op| move |(dist, permille)| vec![Step { permille, ..step(op, dist, 0) }];
    prop_oneof![
        4 => (dist(), permille()).prop_map(one(Op::Compute)),
        4 => section(0),
        2 => section(3),
        2 => nested,
        1 => (0..800u32).prop_map(|pauses| vec![step(Op::Barrier, constant(pauses), 0)]),
        1 => Just(vec![step(Op::SpinBarrier, constant(0), 0)]),
        1 => Just(vec![step(Op::UserBarrier, constant(0), 0)]),
        1 => (0..800u32).prop_map(|pauses| vec![step(Op::CondBarrier, constant(pauses), 0)]),
        2 => (handler(), any::<bool>()).prop_map(|(iterations, lazy)| {
            let op = if lazy { Op::ShootdownLazy } else { Op::Shootdown };
            vec![step(op, constant(iterations), 0)]
        }),
        1 => (dist(), permille()).prop_map(one(Op::Share)),
        1 => dist().prop_map(|work| vec![step(Op::ComputeFirst, work, 0)]),
        1 => (dist(), any::<bool>()).prop_map(|(work, moves)| {
            vec![step(if moves { Op::ComputeMoving } else { Op::ComputeRotating }, work, 0)]
        }),
        1 => (dist(), any::<bool>()).prop_map(|(work, first)| {
            vec![step(if first { Op::SerialFirst } else { Op::SerialRotating }, work, 0)]
        }),
        2 => (dist(), permille(), any::<bool>()).prop_map(|(hold, permille, reads)| {
            let op = if reads { Op::MutexRead } else { Op::Mutex };
            vec![
                Step { permille, ..step(op, constant(0), 1) },
                step(Op::Compute, hold, 0),
                step(Op::MutexUnlock, constant(0), 1),
            ]
        }),
        1 => (1..2_000_000u32, permille()).prop_map(|(mean, permille)| {
            vec![Step { permille, ..step(Op::Block, Dist::Exp { mean, max: 0 }, 0) }]
        }),
        1 => permille().prop_map(|permille| {
            vec![Step { permille, ..step(Op::Wake, constant(0), 0) }]
        }),
    ]
}

/// Answered at once, or after a number of iterations.
fn handler() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), 1..5_000u32]
}

fn program() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(piece(), 1..5).prop_map(|pieces| pieces.concat())
}

fn window() -> impl Strategy<Value = Window> {
    prop_oneof![
        Just(Window::Stock),
        Just(Window::Off),
        (128..40_000u32).prop_map(|cycles| Window::Fixed { cycles }),
        (1..100u32, 0..2000u32).prop_map(|(epoch_ple_exits, epoch_min_us)| {
            Window::Aple(ApleParams { epoch_ple_exits, epoch_min_us, ..ApleParams::default() })
        }),
    ]
}

fn lock() -> impl Strategy<Value = (LockKind, Option<u64>)> {
    let tau = prop_oneof![Just(None), (0..50_000u64).prop_map(Some)];
    (prop::sample::select(LockKind::all()).prop_map(|(_, kind)| kind), tau)
}

fn platform() -> impl Strategy<Value = (Platform, Option<u32>)> {
    let factors = Factor::all().into_iter().map(|(_, factor)| factor).collect::<Vec<_>>();
    let without = prop::sample::subsequence(factors, 0..=3);
    let bits = (prop::bool::weighted(0.2), any::<bool>(), prop_oneof![Just(0), 1..300u32]);
    (bits, without, prop::option::of(1..4u32)).prop_map(
        |((physical, apicv, halt_poll_us), without, llc)| {
            (Platform { physical, apicv, halt_poll_us, without }, llc)
        },
    )
}

#[allow(clippy::too_many_lines)] // a draw of every setting
fn machine() -> impl Strategy<Value = Setup> {
    let credit = prop::option::weighted(
        0.3,
        (
            any::<bool>(),
            prop::sample::select(vec![
                Coscheduling::None,
                Coscheduling::Con,
                Coscheduling::Vcrd,
                Coscheduling::VcrdPle,
            ]),
            1..5u64,
        ),
    );
    let sizes = (1..6u32, 1..5u32, 1..7u32, any::<bool>());
    let ways = (
        prop::sample::select(Kernel::ALL.to_vec()),
        lock(),
        window(),
        prop::sample::select(YieldTo::all().collect::<Vec<_>>()),
        any::<bool>(),
    );
    let guest = (prop::option::of(1..10u32), prop_oneof![Just(0u32), 100..2000u32], platform());
    let rest = (any::<u64>(), prop::collection::vec(1..500u32, 4), credit, guest);
    (sizes, ways, program(), rest).prop_map(
        |(
            (pcpus, vms, vcpus, pinned),
            (kernel, lock, window, yield_to, server),
            program,
            (seed, weights, credit, (threads, tick_hz, (platform, llc_pcpus))),
        )| {
            let pin = (0..vcpus).filter(|_| pinned).map(|v| v % pcpus).collect::<Vec<_>>();
            let mut run = run(vms, vcpus, program).with(|vm| {
                vm.pin = pin.clone();
                (vm.lock, vm.tau_ns) = lock;
            });
            run.arm = arm(window, yield_to);
            run.arm.platform = Platform { physical: platform.physical && vms == 1, ..platform };
            run.seed = seed;
            run.warmup_ms = 3;
            run.window_ms = 17;
            if seed % 2 == 0 {
                run.cgroup = CgroupLayout::Vm;
                run = run.weighted(&weights);
            }
            let host = if server { Host::server(pcpus, kernel) } else { Host::lab(pcpus, kernel) };
            let host = match credit {
                None => {
                    let on = |bit: u64| seed >> bit & 1 == 1;
                    if on(3) {
                        run.arm.asym = Asym {
                            time: on(4),
                            latency: on(5),
                            resolver: on(6),
                            weight: on(16),
                            uncorrected: on(15),
                            period_ms: Some(7).filter(|_| on(5) && on(4)),
                        };
                    }
                    if on(13) && run.arm.asym == Asym::default() && module::acts(&run.arm) {
                        let ways = [Coscheduling::Con, Coscheduling::VcrdPle];
                        run.arm.coscheduling = ways[usize::from(on(14))];
                        run.arm.turn_us = Some(1000 + (seed >> 20) as u32 % 4000);
                    }
                    let host = if on(9) { host.with_pause_filter() } else { host };
                    let capped = on(10) && run.cgroup != CgroupLayout::Flat;
                    Host { capped, ..host }.with_period_ns(3_000_000 << (seed >> 7 & 3))
                }
                Some((capped, way, slots)) => {
                    run.arm.coscheduling = way;
                    run.arm.yield_to = YieldTo::Stock;
                    let host = match seed >> 40 & 1 {
                        0 => host.with_xen_credit(capped),
                        _ => host.with_credit(capped),
                    };
                    host.with_period_ns(slots * 10_000_000)
                }
            };
            let idle_states: &[IdleState] =
                if seed >> 9 & 1 == 1 { &IdleState::NEHALEM } else { &[] };
            let threads_share_cores = pcpus % 2 == 0 && seed >> 16 & 1 == 1;
            let thread_speed_percent = 50 + (seed >> 17) as u32 % 51;
            let host =
                Host { llc_pcpus, idle_states, threads_share_cores, thread_speed_percent, ..host };
            let mut setup = Setup::new(&host, &run);
            setup.budgets = Budgets {
                by_turns: seed >> 10 & 1 == 1,
                pv_ticket_turns: (seed >> 11 & 1 == 1).then_some(2048),
                pv_queued_in_order: seed >> 12 & 1 == 1,
            };
            for (number, vm) in setup.vms.iter_mut().enumerate() {
                if seed >> (24 + number) & 1 == 1 && setup.host.credit.is_none() {
                    vm.arm.coscheduling = Coscheduling::None;
                }
                vm.threads = threads.unwrap_or(vm.threads);
                vm.tick_hz = tick_hz;
            }
            setup
        },
    )
}

fn check(setup: &Setup) {
    let first = simulate_setup(setup).unwrap();
    let vcpus = setup.vms[0].vcpus;
    let window_ns = first.result.window_ns;
    let mut cpu_ns = 0;
    for vm in &first.result.vm {
        let spent = vm.attribution.unwrap();
        assert_eq!(sum_ns(&spent), window_ns * u64::from(vcpus), "time of a VM");
        let on_cpu = sum_ns(&spent) - spent.halted_ns - spent.waiting_ns;
        assert_eq!(vm.cpu_ns.iter().sum::<u64>(), on_cpu, "CPU time of a VM");
        cpu_ns += on_cpu;
        let waits: u64 = vm.wait_hist.iter().sum();
        let acquisitions: u64 = vm.acquisitions.iter().sum();
        assert!(waits.abs_diff(acquisitions) <= u64::from(vcpus), "{waits} {acquisitions}");
        let part = spent.factors.unwrap();
        let host_parts =
            part.idle_switch_ns + part.spin_switch_ns + part.ipi_ns + part.migration_ns;
        assert!(host_parts <= spent.switch_ns + spent.exit_ns, "{spent:?}");
        let spun = spent.spin_holder_running_ns + spent.spin_holder_preempted_ns;
        assert!(part.user_spin_ns <= spun && part.far_data_ns <= spent.useful_ns, "{spent:?}");
        let stats = vm.module.as_ref().unwrap();
        if setup.run.arm.window == Window::Off {
            assert_eq!((stats.ple_exits, stats.wasteful_spin_cycles), (0, 0));
        }
        let yields = stats.yields() + stats.yields_none + stats.yields_gave_way;
        if setup.run.arm.yield_to != YieldTo::Stock {
            // Some may be undecided at either end of the window.
            let undecided = yields.abs_diff(stats.ple_exits);
            assert!(undecided <= u64::from(vcpus), "every exit has one outcome");
        }
    }
    assert!(cpu_ns <= window_ns * u64::from(setup.host.pcpus));
    turns::nobody_waits_for_long(first.turns.longest_park_ns).unwrap();
    if !setup.host.capped {
        turns::nobody_is_crowded(first.turns.crowded).unwrap();
    }
    let again = simulate_setup(setup).unwrap();
    assert_eq!((first.result, first.events), (again.result, again.events));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn time_is_conserved_and_runs_repeat(setup in machine()) {
        check(&setup);
    }
}
