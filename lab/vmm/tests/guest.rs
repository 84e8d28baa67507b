// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest on this computer's /dev/kvm: every lock, both privilege levels, every step. Functions
//! only; nothing here depends on how fast it runs.

use std::path::Path;
use std::time::{Duration, Instant};

use unspin_scenario::plan::{Dist, LockKind, Op, Step};
use unspin_vmm::{VcpuSample, Vm, VmConfig};

const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether this test can run; says why not.
fn kvm() -> bool {
    // Another KVM runs guests by other means, and too slowly for the times of these tests.
    let hardware =
        ["kvm_intel", "kvm_amd"].iter().any(|m| Path::new("/sys/module").join(m).exists());
    if !hardware {
        println!("SKIPPED: guests on /dev/kvm: neither kvm_intel nor kvm_amd is loaded");
        return false;
    }
    let usable = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    if let Err(error) = &usable {
        println!("SKIP: /dev/kvm: {error}");
    }
    usable.is_ok()
}

/// Ends a test that cannot run.
macro_rules! needs_kvm {
    () => {
        if !kvm() {
            return;
        }
    };
}

/// Whether guests can make hypercalls. Where KVM has to emulate every instruction (the host itself is
/// a VM without nested virtualization) VMCALL is fetched again for ever; such a KVM needs some
/// thousand cycles an instruction.
fn hypercalls() -> bool {
    let vcpus = run(&config(1, lock_program()), 20);
    let waits = &vcpus[0].wait_hist;
    let slow = waits.iter().skip(14).sum::<u64>() * 2 > vcpus[0].acquisitions;
    if slow {
        println!(
            "SKIP: locks that halt: this KVM emulates every instruction and ends no hypercall"
        );
    }
    !slow
}

fn step(op: Op, iterations: u32) -> Step {
    Step { op, dist: Dist::Const { iterations }, lock: 0, permille: 1000 }
}

fn lock_program() -> Vec<Step> {
    vec![
        Step { dist: Dist::Exp { mean: 30, max: 0 }, ..step(Op::Compute, 0) },
        step(Op::Lock, 0),
        Step { dist: Dist::Uniform { min: 5, max: 15 }, ..step(Op::Critical, 0) },
        step(Op::Unlock, 0),
    ]
}

fn config(vcpus: u32, program: Vec<Step>) -> VmConfig {
    VmConfig::new(vcpus, program, 7)
}

/// Runs until every vCPU has finished `units` units, then stops.
fn run(config: &VmConfig, units: u64) -> Vec<VcpuSample> {
    let mut vm = Vm::new(config).expect("vm");
    assert_eq!(vm.tids().len(), config.vcpus as usize);
    vm.start();
    let deadline = Instant::now() + PROGRESS_TIMEOUT;
    while vm.sample().iter().any(|vcpu| vcpu.units < units) {
        if let Some(error) = vm.error() {
            panic!("{error}");
        }
        assert!(Instant::now() < deadline, "no progress: {:?}", vm.sample());
        std::thread::sleep(Duration::from_millis(5));
    }
    vm.stop(STOP_TIMEOUT).expect("stop");
    vm.sample()
}

fn assert_waits_counted(vcpus: &[VcpuSample]) {
    for vcpu in vcpus {
        assert_eq!(vcpu.wait_hist.iter().sum::<u64>(), vcpu.acquisitions);
        assert!(vcpu.max_wait_cycles > 0);
    }
}

#[test]
fn every_lock_excludes_at_both_privilege_levels() {
    needs_kvm!();
    let hypercalls = hypercalls();
    for (name, lock) in LockKind::all() {
        for cpl in [0, 3] {
            if lock.halts() && cpl == 0 && !hypercalls {
                continue;
            }
            let config = VmConfig { lock, cpl, ..config(4, lock_program()) };
            if lock.halts() && cpl == 3 {
                let error = Vm::new(&config).err().expect("refused").to_string();
                assert!(error.contains(name) && error.contains("CPL 3 has no HLT"), "{error}");
                continue;
            }
            let vcpus = run(&config, 20);
            assert_waits_counted(&vcpus);
            assert!(vcpus.iter().all(|v| v.acquisitions >= 20), "{name} cpl {cpl}");
        }
    }
}

/// Waiters halt in nearly every wait: a clock of 1 MHz makes every threshold a few TSC cycles, and
/// critical sections are far longer. A wake-up that got lost would leave the VM standing, for nothing
/// else ends a halt.
#[test]
fn no_wakeup_of_a_halted_waiter_is_lost() {
    needs_kvm!();
    if !hypercalls() {
        return;
    }
    let program = vec![
        Step { dist: Dist::Exp { mean: 300, max: 0 }, ..step(Op::Compute, 0) },
        step(Op::Lock, 0),
        Step { dist: Dist::Uniform { min: 200, max: 2000 }, ..step(Op::Critical, 0) },
        step(Op::Unlock, 0),
    ];
    for (name, lock) in LockKind::all().into_iter().filter(|(_, lock)| lock.halts()) {
        // The opportunistic and the long spinners wait for seconds before they halt.
        let vcpus = VmConfig { lock, lock_clock_mhz: Some(1), ..config(4, program.clone()) };
        let samples = run(&vcpus, 300);
        assert_waits_counted(&samples);
        assert!(samples.iter().all(|v| v.acquisitions >= 300), "{name}");
    }
}

#[test]
fn tau_and_clock_reach_the_guest() {
    needs_kvm!();
    let tuned = |tau_ns, lock_clock_mhz| VmConfig {
        lock: LockKind::Preemptable,
        tau_ns,
        lock_clock_mhz,
        ..config(4, lock_program())
    };
    for tau_ns in [Some(0), Some(8000), Some(1_000_000_000), None] {
        assert_waits_counted(&run(&tuned(tau_ns, Some(2600)), 20));
    }
    // The guest takes no clock that stands still.
    let mut vm = Vm::new(&tuned(None, Some(0))).expect("vm");
    vm.start();
    let deadline = Instant::now() + PROGRESS_TIMEOUT;
    while vm.error().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let error = vm.stop(STOP_TIMEOUT).expect_err("no clock").to_string();
    assert!(error.contains("configuration page"), "{error}");
}

#[test]
fn stalls_are_counted_by_what_the_lock_was() {
    needs_kvm!();
    // Held for long, free for short: all who wait long wait for a holder.
    let program = vec![step(Op::Lock, 0), step(Op::Critical, 300), step(Op::Unlock, 0)];
    for lock in [LockKind::Ticket, LockKind::Mcs, LockKind::Preemptable] {
        let counted = VmConfig { lock, stalls: true, ..config(4, program.clone()) };
        let vcpus = run(&counted, 10);
        let sum = |hist: fn(&VcpuSample) -> &Vec<u64>, b: usize| -> u64 {
            vcpus.iter().map(|v| hist(v)[b]).sum()
        };
        // A wait that has come to 2^b turns has come to 2^(b-1).
        for b in 1..32 {
            let at = |b| sum(|v| &v.stalls_free, b) + sum(|v| &v.stalls_held, b);
            assert!(at(b) <= at(b - 1), "{lock:?}: {} waits of 2^{b} turns", at(b));
        }
        let waits: u64 = vcpus.iter().map(|v| v.acquisitions).sum();
        assert!(sum(|v| &v.stalls_held, 3) > 0, "{lock:?}: {waits} waits, none for a holder");
    }
    let plain = run(&config(2, program), 5);
    assert!(plain.iter().all(|v| v.stalls_free.is_empty() && v.stalls_held.is_empty()));
}

#[test]
fn one_to_eight_vcpus() {
    needs_kvm!();
    for count in [1, 2, 8] {
        assert_eq!(run(&config(count, lock_program()), 20).len(), count as usize);
    }
}

#[test]
fn nested_locks_and_chances() {
    needs_kvm!();
    let on = |lock, step: Step| Step { lock, ..step };
    let program = vec![
        step(Op::Lock, 0),
        step(Op::Critical, 2),
        Step { permille: 300, ..on(1, step(Op::Lock, 0)) },
        step(Op::Critical, 2),
        on(1, step(Op::Unlock, 0)),
        step(Op::Unlock, 0),
        step(Op::Compute, 5),
    ];
    let vcpus = run(&config(1, program), 1500);
    let (units, taken) =
        vcpus.iter().fold((0, 0), |(u, a), v| (u + v.units, a + v.acquisitions - v.units));
    let share = taken as f64 / units as f64;
    assert!((0.25..0.35).contains(&share), "inner lock taken in {share} of the units");
}

#[test]
fn lengths_follow_their_distribution() {
    needs_kvm!();
    for (dist, mean) in [
        (Dist::Const { iterations: 21 }, 21.0),
        (Dist::Uniform { min: 10, max: 30 }, 20.0),
        (Dist::Exp { mean: 50, max: 0 }, 49.5),
        (Dist::Exp { mean: 50, max: 50 }, 50.0 * (1.0 - (-1f64).exp()) - 0.3),
    ] {
        let vcpus = run(&config(1, vec![Step { dist, ..step(Op::Compute, 0) }]), 4_000);
        let got = vcpus[0].iterations as f64 / vcpus[0].units as f64;
        assert!((got / mean - 1.0).abs() < 0.06, "{dist:?}: {got} instead of {mean}");
    }
}

#[test]
fn barriers_keep_vcpus_together() {
    needs_kvm!();
    for (op, cpl) in [(Op::Barrier, 0), (Op::SpinBarrier, 0), (Op::SpinBarrier, 3)] {
        let program = vec![
            Step { dist: Dist::Exp { mean: 10, max: 0 }, ..step(Op::Compute, 0) },
            step(op, 0),
        ];
        let vcpus = run(&VmConfig { cpl, ..config(4, program) }, 10);
        let least = vcpus.iter().map(|v| v.units).min().unwrap();
        let most = vcpus.iter().map(|v| v.units).max().unwrap();
        assert!(most - least <= 1, "{op:?}: {least} to {most} units");
    }
}

#[test]
fn block_ends_by_timer_and_by_wake() {
    needs_kvm!();
    run(&config(2, vec![step(Op::Block, 100_000)]), 20);
    // Without a timer: only the other's wake ends a block. The first to block waits for the chance.
    let program = vec![
        Step { permille: 500, ..step(Op::Block, 1_000_000_000) },
        step(Op::Compute, 100),
        step(Op::Wake, 0),
    ];
    run(&config(2, program), 20);
}

/// All ask all, also those in a queue for the lock, in its HLT, in a barrier or asleep: none may wait
/// for ever. From one vCPU on.
#[test]
fn everybody_answers_a_shootdown() {
    needs_kvm!();
    let hypercalls = hypercalls();
    for op in [Op::Shootdown, Op::ShootdownLazy] {
        let asks = |permille| Step { permille, ..step(op, 0) };
        run(&config(1, vec![step(Op::Compute, 10), asks(1000)]), 20);
        run(&config(4, vec![step(Op::Compute, 10), asks(1000)]), 20);
        let mut program = lock_program();
        program.insert(0, asks(500));
        for lock in [LockKind::Ticket, LockKind::PvTicket, LockKind::Lease] {
            if !lock.halts() || hypercalls {
                // A microsecond of a 1 MHz clock: who waits for the lock halts at once.
                let halting = lock.halts().then_some(1);
                run(&VmConfig { lock, lock_clock_mhz: halting, ..config(4, program.clone()) }, 20);
            }
        }
        run(&config(4, vec![asks(500), step(Op::Barrier, 0)]), 20);
        run(&config(4, vec![asks(500), step(Op::SpinBarrier, 0)]), 20);
        run(&config(4, vec![asks(500), step(Op::Block, 50_000)]), 20);
        let wakes = [asks(500), step(Op::Block, 10_000_000), step(Op::Wake, 0)];
        run(&config(4, [vec![Step { permille: 300, ..wakes[1] }], wakes.to_vec()].concat()), 20);
    }
}

/// While it waits for answers, while it is halted, and before it has started.
#[test]
fn a_vm_stops_at_any_time() {
    needs_kvm!();
    let waiting = [(Op::Shootdown, 4, 20, 3), (Op::ShootdownLazy, 4, 20, 3)];
    for (op, vcpus, times, after_ms) in waiting.into_iter().chain([(Op::Block, 2, 1, 100)]) {
        for _ in 0..times {
            let mut vm = Vm::new(&config(vcpus, vec![step(op, 0)])).expect("vm");
            vm.start();
            std::thread::sleep(Duration::from_millis(after_ms));
            vm.stop(STOP_TIMEOUT).expect("stop");
        }
    }
    Vm::new(&config(2, lock_program())).expect("vm").stop(STOP_TIMEOUT).expect("stop");
    drop(Vm::new(&config(2, lock_program())).expect("vm"));
}

#[test]
fn threads_are_named_as_under_qemu() {
    needs_kvm!();
    let vm = Vm::new(&config(2, lock_program())).expect("vm");
    for (index, tid) in vm.tids().iter().enumerate() {
        let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).unwrap();
        assert_eq!(name, format!("CPU {index}/KVM\n"));
    }
}

#[test]
fn seeds_decide_what_is_drawn() {
    needs_kvm!();
    // One vCPU, stopped anywhere: iterations over the first units are a function of the seed, so
    // two VMs agree exactly when their unit counts do; compare the mean of a few draws instead.
    let program = vec![
        Step { permille: 500, ..step(Op::Compute, 1) },
        // Never woken: the VM stands still after one unit.
        step(Op::Block, 0),
    ];
    let first = |seed| {
        let mut vm = Vm::new(&VmConfig { seed, ..config(8, program.clone()) }).expect("vm");
        vm.start();
        std::thread::sleep(Duration::from_millis(300));
        vm.stop(STOP_TIMEOUT).expect("stop");
        vm.sample().iter().map(|v| v.iterations).collect::<Vec<_>>()
    };
    assert_eq!(first(1), first(1));
    assert_ne!(first(1), first(2));
}
