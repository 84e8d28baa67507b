// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many VMs of one process, which never run.

use crate::machine::{says, shell};
use kvm_ioctls::{Kvm, VcpuFd, VmFd};
use std::time::Instant;

/// Holds `count` VMs while a shell runs `first`, creates one more, runs `second`, and creates
/// another. Returns how long each of the two creations took, in us.
pub fn hold(count: u32, first: &str, second: &str) -> Result<String, String> {
    allow_descriptors(2 * u64::from(count) + 100)?;
    let kvm = Kvm::new().map_err(says("/dev/kvm"))?;
    let held: Result<Vec<_>, String> = (0..count).map(|_| make(&kvm)).collect();
    let held = held?;
    shell(first)?;
    let one = timed(&kvm)?;
    shell(second)?;
    let other = timed(&kvm)?;
    drop(held);
    Ok(format!("{} {}", one.0, other.0))
}

fn timed(kvm: &Kvm) -> Result<(u128, VmFd, VcpuFd), String> {
    let vm = kvm.create_vm().map_err(says("KVM_CREATE_VM"))?;
    let start = Instant::now();
    let vcpu = vm.create_vcpu(0).map_err(says("KVM_CREATE_VCPU"))?;
    Ok((start.elapsed().as_micros(), vm, vcpu))
}

fn make(kvm: &Kvm) -> Result<(VmFd, VcpuFd), String> {
    let vm = kvm.create_vm().map_err(says("KVM_CREATE_VM"))?;
    let vcpu = vm.create_vcpu(0).map_err(says("KVM_CREATE_VCPU"))?;
    Ok((vm, vcpu))
}

fn allow_descriptors(count: u64) -> Result<(), String> {
    let limit = libc::rlimit { rlim_cur: count, rlim_max: count };
    // SAFETY: a plain system call.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } {
        0 => Ok(()),
        _ => Err(format!("{count} descriptors: {}", std::io::Error::last_os_error())),
    }
}
