// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest of a few instructions: in each round it reads the real-time clock's port, a register and
//! the memory of a display, and halts.

use kvm_bindings::{kvm_regs, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use std::io;

/// Address of its code, in memory that ends below the display.
const CODE: usize = 0x1000;
const MEMORY: usize = 0x4000;

/// 16-bit code.
const PROGRAM: &[u8] = &[
    0xb0, 0x0c, // mov al, 0xc
    0xe6, 0x70, // out 0x70, al
    0xe4, 0x71, // in al, 0x71
    0x66, 0xb9, 0x3b, 0, 0, 0, // mov ecx, 0x3b
    0x0f, 0x32, // rdmsr
    0xb8, 0x00, 0xa0, // mov ax, 0xa000
    0x8e, 0xd8, // mov ds, ax
    0xa0, 0x00, 0x00, // mov al, [0]
    0xf4, // hlt
    0xeb, 0xe7, // to the begin
];

/// Whole pages.
#[repr(C, align(4096))]
struct Memory([u8; MEMORY]);

pub struct Guest {
    vcpu: VcpuFd,
    _vm: VmFd,
}

impl Guest {
    /// Its memory stays until the process ends.
    pub fn new() -> io::Result<Guest> {
        let vm = Kvm::new()?.create_vm()?;
        let memory = &mut Box::leak(Box::new(Memory([0; MEMORY]))).0;
        memory[CODE..CODE + PROGRAM.len()].copy_from_slice(PROGRAM);
        let region = kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: 0,
            memory_size: MEMORY as u64,
            userspace_addr: memory.as_ptr() as u64,
        };
        // SAFETY: the memory is never freed, and nobody else knows it.
        unsafe { vm.set_user_memory_region(region)? };
        let vcpu = vm.create_vcpu(0)?;
        let mut segments = vcpu.get_sregs()?;
        (segments.cs.base, segments.cs.selector) = (0, 0);
        vcpu.set_sregs(&segments)?;
        vcpu.set_regs(&kvm_regs { rip: CODE as u64, rflags: 2, ..kvm_regs::default() })?;
        Ok(Guest { vcpu, _vm: vm })
    }

    /// Runs until it has halted this many times.
    pub fn run(&mut self, rounds: u64) -> io::Result<()> {
        let mut halts = 0;
        while halts < rounds {
            match self.vcpu.run()? {
                VcpuExit::Hlt => halts += 1,
                VcpuExit::IoIn(..) | VcpuExit::IoOut(..) => {}
                VcpuExit::MmioRead(..) | VcpuExit::MmioWrite(..) => {}
                other => return Err(io::Error::other(format!("KVM left it for {other:?}"))),
            }
        }
        Ok(())
    }
}
