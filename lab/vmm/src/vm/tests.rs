// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that need a VM's memory: faults, and which vCPU was asked by which.

use super::*;
use unspin_scenario::plan::Op;

const TIMEOUT: Duration = Duration::from_secs(120);

/// A program of one lock, two vCPUs.
fn plain(cpl: u8) -> VmConfig {
    let program =
        vec![Step::new(Op::Lock, 0), Step::new(Op::Critical, 5), Step::new(Op::Unlock, 0)];
    VmConfig { cpl, ..VmConfig::new(2, program, 1) }
}

/// A VM whose memory a test may spoil before it starts; `None` (and why) without KVM.
fn vm(cpl: u8) -> Option<Vm> {
    of_config(plain(cpl))
}

fn of_config(config: VmConfig) -> Option<Vm> {
    match Vm::new(&config) {
        Err(Error::OpenKvm(error)) => {
            println!("SKIP: /dev/kvm: {error}");
            None
        }
        vm => Some(vm.expect("vm")),
    }
}

fn spoil(vm: &Vm, at: u64, bytes: &[u8]) {
    vm.memory.write_slice(bytes, GuestAddress(at)).unwrap();
}

fn wait_for_error(vm: &mut Vm) {
    let deadline = Instant::now() + TIMEOUT;
    while vm.error().is_none() {
        assert!(Instant::now() < deadline, "the guest goes on");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn an_exception_is_reported_with_vector_and_address() {
    for cpl in [0, 3] {
        let Some(mut vm) = vm(cpl) else { return };
        let lock = std::mem::offset_of!(abi::Config, steps) + std::mem::offset_of!(abi::Step, lock);
        spoil(&vm, abi::CONFIG_ADDR + lock as u64, &0x0fff_ffffu32.to_le_bytes());
        vm.start();
        wait_for_error(&mut vm);
        let Err(Error::Guest { fault, .. }) = vm.stop(TIMEOUT) else { panic!("no fault") };
        let GuestFault::Exception { vector, rip, cr2, cs, .. } = fault else { panic!("{fault}") };
        assert_eq!((vector, cs & 3), (14, u64::from(cpl)));
        assert!((abi::IMAGE_ADDR..abi::IMAGE_END).contains(&rip) && cr2 >= 0x0fff_ffff);
    }
}

#[test]
fn a_triple_fault_ends_only_the_vm() {
    let Some(mut vm) = vm(0) else { return };
    // UD2 at the entry, before there is an IDT.
    spoil(&vm, abi::IMAGE_ADDR, &[0x0f, 0x0b]);
    vm.start();
    wait_for_error(&mut vm);
    let error = vm.stop(TIMEOUT).unwrap_err();
    assert!(matches!(error, Error::Guest { fault: GuestFault::TripleFault { .. }, .. }), "{error}");
}

#[test]
fn a_guest_of_another_version_is_refused() {
    let Some(mut vm) = vm(0) else { return };
    spoil(&vm, abi::CONFIG_ADDR + 4, &77u32.to_le_bytes());
    vm.start();
    wait_for_error(&mut vm);
    let error = vm.stop(TIMEOUT).unwrap_err();
    assert!(matches!(error, Error::Guest { fault: GuestFault::BadConfig, .. }), "{error}");
}

#[test]
fn a_guest_that_does_not_stop_is_taken_off_the_cpu() {
    let Some(mut vm) = vm(0) else { return };
    // JMP to itself at the entry.
    spoil(&vm, abi::IMAGE_ADDR, &[0xeb, 0xfe]);
    vm.start();
    let error = vm.stop(Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, Error::StopTimeout { running: 2, .. }), "{error}");
}

#[test]
fn a_lost_increment_is_a_violation() {
    let Some(mut vm) = vm(0) else { return };
    spoil(&vm, abi::PROTECTED_ADDR, &u64::MAX.to_le_bytes());
    vm.start();
    while vm.sample()[0].acquisitions < 5 {
        std::thread::sleep(Duration::from_millis(2));
    }
    let error = vm.stop(TIMEOUT).unwrap_err();
    let Error::MutualExclusion { releases, counted } = error else { panic!("{error}") };
    assert_eq!(counted, releases - 1);
}

#[test]
fn pause_exits_can_be_switched_off_where_kvm_offers_it() {
    let Some(vm) = vm(0) else { return };
    drop(vm);
    let fd = open_kvm().unwrap();
    let vm = fd.create_vm().unwrap();
    match disable_pause_exits(&fd, &vm) {
        Ok(()) | Err(Error::PauseExitsStayOn) => {}
        Err(error) => panic!("{error}"),
    }
}

/// What the shootdowns of a VM have left in its memory, a vCPU each.
fn calls(vm: &Vm) -> Vec<abi::Calls> {
    let word = |at: u64| vm.memory.read_obj::<u32>(GuestAddress(at)).unwrap();
    (0..vm.threads.len() as u64)
        .map(|vcpu| abi::CALLS_ADDR + vcpu * size_of::<abi::Calls>() as u64)
        .map(|at| abi::Calls { asked: word(at), answered: word(at + 4), memory: word(at + 8) })
        .collect()
}

fn units(vm: &Vm) -> Vec<u32> {
    vm.sample().iter().map(|vcpu| vcpu.units as u32).collect()
}

/// Until vCPU 0 has gone on by `more` units.
fn go_on(vm: &mut Vm, more: u32) {
    one_goes_on(vm, 0, more);
}

fn one_goes_on(vm: &mut Vm, vcpu: usize, more: u32) {
    let (begin, deadline) = (units(vm)[vcpu], Instant::now() + TIMEOUT);
    while units(vm)[vcpu] < begin + more {
        assert!(vm.error().is_none(), "{:?}", vm.error());
        assert!(Instant::now() < deadline, "no progress: {:?}", calls(vm));
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn asking(vcpus: u32, op: Op) -> Option<Vm> {
    let program = vec![Step::new(Op::Compute, 200), Step::new(op, 0)];
    of_config(VmConfig { vcpus, program, ..plain(0) })
}

/// Units of all but `vcpu`, each with one shootdown.
fn by_others(vm: &Vm, vcpu: usize) -> u32 {
    let units = units(vm);
    units.iter().enumerate().filter(|(v, _)| *v != vcpu).map(|(_, units)| units).sum()
}

#[test]
fn a_shootdown_goes_on_when_all_siblings_have_answered() {
    for op in [Op::Shootdown, Op::ShootdownLazy] {
        let Some(mut vm) = asking(3, op) else { return };
        vm.start();
        go_on(&mut vm, 20);
        for vcpu in 0..3 {
            // Before it was up nobody asked it: so often, and up to twice, as two may be asking now.
            let unasked = |_| {
                let asked = calls(&vm)[vcpu].asked;
                by_others(&vm, vcpu) + 2 - asked
            };
            let unasked = (0..50).map(unasked).min().unwrap_or(0);
            for _ in 0..200 {
                // A unit that is counted had its answers before.
                let asked_for = by_others(&vm, vcpu);
                let answered = calls(&vm)[vcpu].answered;
                assert!(
                    answered + unasked >= asked_for,
                    "{op:?}: vCPU {vcpu} gave {answered} answers of {asked_for} - {unasked}"
                );
            }
        }
        vm.stop(TIMEOUT).expect("stop");
    }
}

#[test]
fn only_a_lazy_shootdown_asks_who_sleeps_and_once() {
    for (op, asks_lazy) in [(Op::Shootdown, false), (Op::ShootdownLazy, true)] {
        let Some(mut vm) = asking(2, op) else { return };
        let memory_of_1 = abi::CALLS_ADDR + size_of::<abi::Calls>() as u64 + 8;
        // Nothing in the program sleeps, so that vCPU 1 leaves this word to the test.
        let set = |vm: &mut Vm, memory: u32| {
            spoil(vm, memory_of_1, &memory.to_le_bytes());
            go_on(vm, 2); // one may have looked before
            let begin = calls(vm)[1];
            go_on(vm, 20);
            (begin, calls(vm)[1])
        };
        vm.start();
        // A vCPU that is not up yet loses an interrupt.
        one_goes_on(&mut vm, 1, 1);
        go_on(&mut vm, 5);
        let (begin, used) = set(&mut vm, abi::MEMORY_USED);
        assert!(used.asked >= begin.asked + 19, "{op:?}: {begin:?} {used:?}");
        let (begin, left) = set(&mut vm, abi::MEMORY_LEFT);
        assert_eq!(left.asked, begin.asked, "{op:?}");
        let (begin, lazy) = set(&mut vm, abi::MEMORY_LAZY);
        assert_eq!(lazy.asked, begin.asked, "{op:?}");
        assert_eq!(lazy.answered, lazy.asked, "{op:?}");
        assert_eq!(lazy.asked - left.asked, u32::from(asks_lazy), "{op:?}");
        let expected = if asks_lazy { abi::MEMORY_LEFT } else { abi::MEMORY_LAZY };
        assert_eq!(lazy.memory, expected, "{op:?}");
        vm.stop(TIMEOUT).expect("stop");
    }
}
