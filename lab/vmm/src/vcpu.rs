// SPDX-License-Identifier: MIT OR Apache-2.0
//! One vCPU and the thread that runs it.

use std::sync::atomic::{AtomicBool, Ordering};

use kvm_bindings::{kvm_mp_state, CpuId, KVM_MP_STATE_RUNNABLE};
use kvm_ioctls::{VcpuExit, VcpuFd, VmFd};

use crate::{boot, Error, GuestFault};
use unspin_guest_abi as abi;

const CPUID_FEATURES: u32 = 1;
const CPUID_TOPOLOGY: [u32; 2] = [0xb, 0x1f];
const CPUID_KVM_FEATURES: u32 = 0x4000_0001;
const KVM_FEATURE_PV_UNHALT: u32 = 1 << 7;

/// Creates vCPU `index` in the guest's start state.
pub(crate) fn create(vm: &VmFd, supported: &CpuId, index: u32) -> Result<VcpuFd, Error> {
    let vcpu = vm.create_vcpu(u64::from(index)).map_err(Error::kvm("KVM_CREATE_VCPU"))?;
    vcpu.set_cpuid2(&cpuid_of(supported, index)).map_err(Error::kvm("KVM_SET_CPUID2"))?;
    let mut sregs = vcpu.get_sregs().map_err(Error::kvm("KVM_GET_SREGS"))?;
    boot::set_sregs(&mut sregs, index);
    vcpu.set_sregs(&sregs).map_err(Error::kvm("KVM_SET_SREGS"))?;
    vcpu.set_regs(&boot::start_regs(index)).map_err(Error::kvm("KVM_SET_REGS"))?;
    // With the in-kernel irqchip all but the first would wait for INIT and SIPI.
    vcpu.set_mp_state(kvm_mp_state { mp_state: KVM_MP_STATE_RUNNABLE })
        .map_err(Error::kvm("KVM_SET_MP_STATE"))?;
    Ok(vcpu)
}

/// Whether a halted vCPU may be kicked.
pub(crate) fn has_pv_unhalt(supported: &CpuId) -> bool {
    let leaf = supported.as_slice().iter().find(|e| e.function == CPUID_KVM_FEATURES);
    leaf.is_some_and(|e| e.eax & KVM_FEATURE_PV_UNHALT != 0)
}

/// Whether hypercalls are VMMCALL (AMD and Hygon), not VMCALL.
pub(crate) fn has_vmmcall(supported: &CpuId) -> bool {
    let vendor = supported.as_slice().iter().find(|e| e.function == 0);
    vendor.is_some_and(|e| [*b"Auth", *b"Hygo"].contains(&e.ebx.to_le_bytes()))
}

/// The CPUID that KVM supports, including paravirtual features, with this vCPU's APIC id.
fn cpuid_of(supported: &CpuId, index: u32) -> CpuId {
    let mut cpuid = supported.clone();
    for entry in cpuid.as_mut_slice() {
        if entry.function == CPUID_FEATURES {
            entry.ebx = (entry.ebx & 0x00ff_ffff) | index << 24;
        } else if CPUID_TOPOLOGY.contains(&entry.function) {
            entry.edx = index;
        }
    }
    cpuid
}

/// Runs the vCPU until its guest ends. `Ok` if it was stopped, by the stop word or by `kill`, which
/// is checked whenever a signal interrupts KVM_RUN.
pub(crate) fn run(vcpu: &mut VcpuFd, kill: &AtomicBool) -> Result<(), GuestFault> {
    while !kill.load(Ordering::Acquire) {
        let end = match vcpu.run() {
            Ok(VcpuExit::IoOut(abi::PORT_END, data)) => End::Code(word(data)),
            Ok(VcpuExit::IoOut(abi::PORT_FAULT, _)) => End::Fault,
            Ok(VcpuExit::Shutdown) => End::TripleFault,
            Ok(VcpuExit::FailEntry(reason, _)) => return Err(GuestFault::FailEntry { reason }),
            Ok(other) => End::Unexpected(format!("{other:?}")),
            Err(e) if e.errno() == libc::EINTR || e.errno() == libc::EAGAIN => continue,
            Err(e) => return Err(GuestFault::Run(e.to_string())),
        };
        return match end {
            End::Code(abi::STOPPED) => Ok(()),
            End::Code(abi::BAD_APIC) => Err(GuestFault::BadApic),
            End::Code(abi::BAD_KICK) => Err(GuestFault::BadKick),
            End::Code(_) => Err(GuestFault::BadConfig),
            End::Fault => Err(exception(vcpu)),
            End::TripleFault => Err(GuestFault::TripleFault { rip: rip(vcpu) }),
            End::Unexpected(exit) => Err(GuestFault::UnexpectedExit { exit, rip: rip(vcpu) }),
        };
    }
    Ok(())
}

enum End {
    Code(u32),
    Fault,
    TripleFault,
    Unexpected(String),
}

fn word(data: &[u8]) -> u32 {
    data.try_into().map_or(0, u32::from_le_bytes)
}

fn rip(vcpu: &VcpuFd) -> u64 {
    vcpu.get_regs().map_or(0, |regs| regs.rip)
}

fn exception(vcpu: &VcpuFd) -> GuestFault {
    match vcpu.get_regs() {
        Ok(regs) => GuestFault::Exception {
            vector: regs.rdi,
            error_code: regs.rsi,
            rip: regs.r8,
            cr2: regs.r9,
            cs: regs.r10,
        },
        Err(e) => GuestFault::Run(e.to_string()),
    }
}
