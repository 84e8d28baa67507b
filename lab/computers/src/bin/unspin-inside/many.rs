// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many VMs of one process, which never run.

use crate::exact::to_the_end;
use crate::machine::{pin, says, shell, Memory};
use crate::spinner;
use kvm_ioctls::{Kvm, VcpuFd, VmFd};
use std::fs::read_to_string;
use std::time::Instant;

/// Holds `count` VMs while a shell runs `first`, creates one more, runs `second`, and creates
/// another. Returns how long each of the two creations took, in us.
pub fn hold(count: u32, first: &str, second: &str) -> Result<String, String> {
    allow_descriptors(2 * u64::from(count) + 100)?;
    let kvm = Kvm::new().map_err(says("/dev/kvm"))?;
    let held: Result<Vec<_>, String> = (0..count).map(|_| make(&kvm)).collect();
    let held = held?;
    shell(first)?;
    let one = make(&kvm)?;
    shell(second)?;
    let other = make(&kvm)?;
    drop(held);
    Ok(format!("{} {}", one.0, other.0))
}

/// A VM with a vCPU, and how long making the vCPU took, us.
fn make(kvm: &Kvm) -> Result<(u128, VmFd, VcpuFd), String> {
    let vm = kvm.create_vm().map_err(says("KVM_CREATE_VM"))?;
    let start = Instant::now();
    let vcpu = vm.create_vcpu(0).map_err(says("KVM_CREATE_VCPU"))?;
    Ok((start.elapsed().as_micros(), vm, vcpu))
}

/// KVM refuses a vCPU whose number is taken after it has been created, and its address is that of the next one. So
/// many are refused, by turns, of 2 VMs, then one of a third, and at last the second gets a vCPU that runs. Returns
/// the CPU time that the module counts for the third.
pub fn refused(times: u32) -> Result<String, String> {
    pin(0)?; // addresses are kept per CPU
    let memory = Memory::new(spinner::MEMORY)?;
    spinner::load(memory);
    let kvm = Kvm::new().map_err(says("/dev/kvm"))?;
    let (_, third, _never) = make(&kvm)?;
    let second = memory.vm()?;
    let (_first_vcpu, _) = spinner::make(&second, memory, 0)?;
    let (_, first, _also_never) = make(&kvm)?;
    let is_refused = |vm: &VmFd| match vm.create_vcpu(0) {
        Err(e) if e.errno() == libc::EEXIST => Ok(()),
        other => Err(format!("not refused: {other:?}")),
    };
    for _ in 0..times {
        is_refused(&first)?;
        is_refused(&second)?;
    }
    is_refused(&third)?;
    let (mut vcpu, words) = spinner::make(&second, memory, 1)?;
    words.set_left(1000);
    to_the_end(&mut vcpu)?;
    let counted = format!("/sys/module/unspin/vms/{}-0/cpu_cycles", std::process::id());
    read_to_string(&counted).map_err(|e| format!("{counted}: {e}"))
}

fn allow_descriptors(count: u64) -> Result<(), String> {
    let limit = libc::rlimit { rlim_cur: count, rlim_max: count };
    // SAFETY: a plain system call.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } {
        0 => Ok(()),
        _ => Err(format!("{count} descriptors: {}", std::io::Error::last_os_error())),
    }
}
