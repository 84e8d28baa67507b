// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs on this computer, of locks that are right and of some that are wrong.

use super::*;
use unspin_scenario::plan::{self, Arm, Dist, Op, Step};

/// Two VMs of three vCPUs on one CPU.
fn crowded(program: Vec<Step>) -> Run {
    let arm = Arm { name: "arm".into(), observe: true, ..Arm::default() };
    Run {
        profile: "test".into(),
        arm,
        baseline: "arm".into(),
        warmup_ms: 1,
        stagger_ms: 3,
        ..Run::new(program, 2, 3).with(|vm| (vm.spin_intensive, vm.pin) = (true, vec![0; 3]))
    }
}

fn step(op: Op, iterations: u32, permille: u32) -> Step {
    Step { op, dist: Dist::Const { iterations }, lock: 0, permille }
}

fn locking() -> Vec<Step> {
    vec![
        step(Op::Compute, 300, 1000),
        step(Op::Lock, 0, 1000),
        step(Op::Critical, 300, 1000),
        step(Op::Unlock, 0, 1000),
    ]
}

#[test]
fn every_lock_makes_progress_and_is_accounted_for() {
    for (name, lock) in LockKind::all() {
        in_one_of_some(name, || accounted_for(lock));
    }
}

/// A busy computer may keep the threads from their CPU for a whole window, or the reader from its
/// own between two counts: what holds must hold in one window of some.
fn in_one_of_some(what: &str, window: impl Fn() -> Result<(), String>) {
    let windows = (0..50).map(|_| window());
    let wrong: Vec<String> = windows.map_while(Result::err).collect();
    assert!(wrong.len() < 50, "{what}: {}", wrong[0]);
}

fn accounted_for(lock: LockKind) -> Result<(), String> {
    let result =
        run(&crowded(locking()).with(|vm| vm.lock = lock), 1).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(result.vm.len(), 2);
    // A first count that is late leaves less of the window.
    if result.window_ns < 20_000_000 {
        return Err(format!("a window of {} ns", result.window_ns));
    }
    if result.vm.iter().flat_map(|vm| &vm.acquisitions).sum::<u64>() == 0 {
        return Err("no acquisitions".into());
    }
    for vm in &result.vm {
        assert_eq!(vm.error, None);
        let sched = vm.sched.as_ref().unwrap();
        assert_eq!(sched.involuntary_switches.len(), 3);
        assert!(sched.steal_ns.as_ref().is_none_or(|steal| steal.len() == 3));
        let waits: u64 = vm.wait_hist.iter().sum();
        let acquired: u64 = vm.acquisitions.iter().sum();
        if waits.abs_diff(acquired) > 6 {
            return Err(format!("{waits} waits, {acquired} acquired"));
        }
        let cpu: u64 = vm.cpu_ns.iter().sum();
        if cpu > 2 * result.window_ns {
            return Err(format!("{cpu} ns on one CPU"));
        }
    }
    Ok(())
}

#[test]
fn vms_of_a_run_may_differ() {
    let mut unlike = crowded(locking());
    let usual = unlike.vms[0].clone();
    let vm = |vcpus: u32, lock, tau_ns| {
        let pin = vec![0; vcpus as usize];
        plan::Vm { vcpus, lock, tau_ns, pin, ..usual.clone() }
    };
    unlike.vms = vec![vm(1, LockKind::Mcs, None), vm(2, LockKind::Preemptable, Some(500))];
    let result = run(&unlike, 1).unwrap();
    let sizes: Vec<usize> = result.vm.iter().map(|vm| vm.acquisitions.len()).collect();
    assert_eq!(sizes, [1, 2]);
    assert!(result.vm.iter().all(|vm| vm.error.is_none()));
}

#[test]
fn a_lock_that_lets_two_in_is_found() {
    // Preempted inside often enough on any computer.
    let one_line = crowded(locking()).with(|vm| vm.program[2] = step(Op::Critical, 300_000, 1000));
    in_one_of_some("wrong_open", || {
        let result = run_under(&|_| "wrong_open".into(), &one_line, 1, GRACE).unwrap();
        let found =
            |error: &Option<String>| error.as_ref().is_some_and(|e| e.contains("two vCPUs"));
        let all = result.vm.iter().all(|vm| found(&vm.error));
        all.then_some(()).ok_or_else(|| "a VM without an error".into())
    });
}

#[test]
fn a_lock_that_hangs_ends_the_run() {
    let grace = Duration::from_millis(200);
    let error = run_under(&|_| "wrong_lost".into(), &crowded(locking()), 1, grace).unwrap_err();
    assert!(matches!(error, Error::Hangs { threads: 4..=6, .. }), "{error}");
    assert!(error.to_string().contains("0.2 s after the end: a lock hangs"), "{error}");
}

#[test]
fn a_run_whose_threads_all_wait_ends() {
    // 0: until it is woken, which never happens.
    let block = step(Op::Block, 0, 1000);
    let half_block = step(Op::Block, 0, 500);
    for program in [
        vec![block],
        vec![half_block, step(Op::Barrier, 0, 1000)],
        vec![half_block, step(Op::SpinBarrier, 0, 1000)],
        vec![half_block, step(Op::Barrier, 50, 1000), step(Op::Wake, 0, 10)],
    ] {
        let began = Instant::now();
        let result = run(&crowded(program.clone()), 1).unwrap_or_else(|e| panic!("{e}"));
        assert!(result.vm.iter().all(|vm| vm.error.is_none()), "{program:?}");
        assert!(began.elapsed() < GRACE, "{program:?}");
    }
}

#[test]
fn barriers_keep_vcpus_together() {
    for barrier in [step(Op::Barrier, 0, 1000), step(Op::Barrier, 20, 1000)] {
        in_one_of_some("a barrier", || {
            let result = run(&crowded(vec![step(Op::Compute, 100, 1000), barrier]), 1).unwrap();
            let together = |units: &[u64]| {
                let (most, least) = (units.iter().max(), units.iter().min());
                most > Some(&0) && most.unwrap() - least.unwrap() <= 2
            };
            let apart = result.vm.iter().find(|vm| !together(&vm.units));
            apart.map_or(Ok(()), |vm| Err(format!("{:?}", vm.units)))
        });
    }
}

#[test]
fn a_block_lasts_as_long_as_it_says() {
    in_one_of_some("blocks of 1 ms", || {
        let result = run(&crowded(vec![step(Op::Block, 1_000_000, 1000)]), 1).unwrap();
        let most = result.window_ns / 1_000_000 + 1;
        let units: Vec<u64> = result.vm.into_iter().flat_map(|vm| vm.units).collect();
        let all = units.iter().all(|units| (1..=most).contains(units));
        all.then_some(()).ok_or_else(|| format!("{units:?} of at most {most}"))
    });
}

#[test]
fn what_this_machine_has_not_is_refused() {
    let refused = |change: fn(&mut Run), why: &str| {
        let mut wrong = crowded(locking());
        change(&mut wrong);
        let error = run(&wrong, 1).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(|r| r.arm.window = Window::Off, "machines kvm, emulated, sim");
    refused(|r| r.arm.yield_to = YieldTo::HVS, "machines kvm, emulated, sim");
    refused(|r| r.vms[1].weight = Some(2), "cgroups");
    refused(|r| r.vms[1].spin_ns = Some(1), "spin_ns");
    refused(|r| r.trace_picks = true, "machines kvm, emulated");
    refused(|r| r.vms[1].program = vec![step(Op::Shootdown, 0, 1000)], "interrupt vCPUs");
    refused(|r| r.window_ms = 0, "window_ms is 0");
    refused(|r| r.vms[1].vcpus = 129, "of 129 vCPUs");
    refused(|r| r.vms.clear(), "0 VMs");
    refused(|r| r.vms[1].pin.truncate(2), "pins 2 vCPUs of 3");
    refused(|r| r.vms[1].pin[2] = 1, "pins to pCPU 1 of 1");
    refused(|r| r.vms[1].program.truncate(3), "never released");
    let alone = Run {
        alone: true,
        arm: Arm { window: Window::Off, ..crowded(vec![]).arm },
        ..crowded(locking())
    };
    assert_eq!(refusal(&alone), None, "without PLE, as everything here");
    assert!(matches!(run(&crowded(locking()), 4096), Err(Error::FewCpus { wanted: 4096, .. })));
}
