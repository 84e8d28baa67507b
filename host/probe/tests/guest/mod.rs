// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest of a few instructions: in each round it reads the real-time clock's port, a register and
//! the memory of a display, and halts.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;

/// Requests and exits of linux/kvm.h.
const KVM_CREATE_VM: libc::c_ulong = 0xae01;
const KVM_GET_VCPU_MMAP_SIZE: libc::c_ulong = 0xae04;
const KVM_CREATE_VCPU: libc::c_ulong = 0xae41;
const KVM_SET_USER_MEMORY_REGION: libc::c_ulong = 0x4020_ae46;
const KVM_RUN: libc::c_ulong = 0xae80;
const KVM_SET_REGS: libc::c_ulong = 0x4090_ae82;
const KVM_GET_SREGS: libc::c_ulong = 0x8138_ae83;
const KVM_SET_SREGS: libc::c_ulong = 0x4138_ae84;
const KVM_EXIT_IO: u32 = 2;
const KVM_EXIT_HLT: u32 = 5;
const KVM_EXIT_MMIO: u32 = 6;

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

/// Mirrors linux/kvm.h.
#[repr(C)]
struct Region {
    slot: u32,
    flags: u32,
    guest: u64,
    size: u64,
    memory: u64,
}

pub struct Guest {
    vcpu: File,
    state: NonNull<u8>,
    _others: [File; 2],
}

fn made(of: &File, request: libc::c_ulong) -> io::Result<File> {
    // SAFETY: the request takes a number, and the descriptor it returns is owned here.
    unsafe {
        match libc::ioctl(of.as_raw_fd(), request, 0) {
            fd if fd >= 0 => Ok(File::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn ask<T>(of: &File, request: libc::c_ulong, with: *mut T) -> io::Result<()> {
    // SAFETY: callers give what the request reads or writes.
    match unsafe { libc::ioctl(of.as_raw_fd(), request, with) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn mapped(length: usize, fd: i32, flags: i32) -> io::Result<NonNull<u8>> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses where.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, flags, fd, 0) };
    let at = NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED);
    at.ok_or_else(io::Error::last_os_error)
}

impl Guest {
    /// Its memory stays mapped until the process ends.
    pub fn new() -> io::Result<Guest> {
        let kvm = File::options().read(true).write(true).open("/dev/kvm")?;
        let vm = made(&kvm, KVM_CREATE_VM)?;
        let memory = mapped(MEMORY, -1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
        // SAFETY: the program fits, and nobody else knows the memory yet.
        unsafe { memory.add(CODE).copy_from(NonNull::from(PROGRAM).cast(), PROGRAM.len()) };
        let (slot, flags, guest, size) = (0, 0, 0, MEMORY as u64);
        let mut region = Region { slot, flags, guest, size, memory: memory.as_ptr() as u64 };
        ask(&vm, KVM_SET_USER_MEMORY_REGION, &mut region)?;
        let vcpu = made(&vm, KVM_CREATE_VCPU)?;
        // SAFETY: it takes nothing, and returns a number.
        let length = unsafe { libc::ioctl(kvm.as_raw_fd(), KVM_GET_VCPU_MMAP_SIZE, 0) };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        let state = mapped(length, vcpu.as_raw_fd(), libc::MAP_SHARED)?;
        // struct kvm_sregs: cs comes first, with its base in 8 bytes and its selector in 2 after base and limit.
        let mut segments = [0u8; 312];
        ask(&vcpu, KVM_GET_SREGS, segments.as_mut_ptr())?;
        segments[..8].fill(0);
        segments[12..14].fill(0);
        ask(&vcpu, KVM_SET_SREGS, segments.as_mut_ptr())?;
        // struct kvm_regs: 16 registers, rip, rflags.
        let mut registers = [0u64; 18];
        (registers[16], registers[17]) = (CODE as u64, 2);
        ask(&vcpu, KVM_SET_REGS, registers.as_mut_ptr())?;
        Ok(Guest { vcpu, state, _others: [kvm, vm] })
    }

    /// Runs until it has halted this many times.
    pub fn run(&mut self, rounds: u64) -> io::Result<()> {
        let mut halts = 0;
        while halts < rounds {
            ask(&self.vcpu, KVM_RUN, std::ptr::null_mut::<u8>())?;
            // SAFETY: struct kvm_run has exit_reason after 8 bytes.
            match unsafe { self.state.add(8).cast::<u32>().read_volatile() } {
                KVM_EXIT_HLT => halts += 1,
                KVM_EXIT_IO | KVM_EXIT_MMIO => {}
                other => return Err(io::Error::other(format!("KVM left it for reason {other}"))),
            }
        }
        Ok(())
    }
}
