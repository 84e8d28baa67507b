// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state a vCPU starts in: 64-bit mode, memory mapped one to one, at the guest's entry.

use kvm_bindings::{kvm_regs, kvm_segment, kvm_sregs};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::Error;
use unspin_guest_abi as abi;

const PAGE_PRESENT: u64 = 1 << 0;
const PAGE_WRITE: u64 = 1 << 1;
const PAGE_USER: u64 = 1 << 2;
const PAGE_LARGE: u64 = 1 << 7;
const LARGE_PAGE_BYTES: u64 = 2 << 20;

const CR0_PE: u64 = 1 << 0;
const CR0_MP: u64 = 1 << 1;
const CR0_ET: u64 = 1 << 4;
const CR0_NE: u64 = 1 << 5;
const CR0_WP: u64 = 1 << 16;
const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;

const SEGMENT_CODE: u8 = 0xb;
const SEGMENT_DATA: u8 = 0x3;
const SEGMENT_TSS_BUSY: u8 = 0xb;
const TSS_LIMIT: u32 = 0x67;
const TSS_RSP0: u64 = 4;
const TSS_IO_MAP: u64 = 102;

/// Flat descriptors in the order of the selectors in `abi`.
const GDT: [u64; 5] = [
    0,
    0x00af_9b00_0000_ffff, // CS_KERNEL
    0x00cf_9300_0000_ffff, // DS_KERNEL
    0x00cf_f300_0000_ffff, // DS_USER
    0x00af_fb00_0000_ffff, // CS_USER
];

/// The guest's image with these additional functions.
pub(crate) fn image(counts_stalls: bool, reports: bool) -> &'static [u8] {
    match (counts_stalls, reports) {
        (false, false) => include_bytes!(concat!(env!("OUT_DIR"), "/guest.bin")),
        (true, false) => include_bytes!(concat!(env!("OUT_DIR"), "/guest-stalls.bin")),
        (false, true) => include_bytes!(concat!(env!("OUT_DIR"), "/guest-reports.bin")),
        (true, true) => include_bytes!(concat!(env!("OUT_DIR"), "/guest-stalls-reports.bin")),
    }
}

/// Writes image, descriptor table, page tables and task-state segments.
pub(crate) fn load(memory: &GuestMemoryMmap, image: &[u8], vcpus: u32) -> Result<(), Error> {
    let failed = Error::memory::<vm_memory::GuestMemoryError>;
    if image.len() as u64 > abi::IMAGE_END - abi::IMAGE_ADDR {
        return Err(Error::Memory(format!("the guest image has {} bytes", image.len())));
    }
    memory.write_slice(image, GuestAddress(abi::IMAGE_ADDR)).map_err(failed)?;
    for (index, descriptor) in GDT.iter().enumerate() {
        let at = GuestAddress(abi::GDT_ADDR + index as u64 * 8);
        memory.write_obj(*descriptor, at).map_err(failed)?;
    }
    let table = PAGE_PRESENT | PAGE_WRITE | PAGE_USER;
    memory.write_obj(abi::PDPT_ADDR | table, GuestAddress(abi::PML4_ADDR)).map_err(failed)?;
    memory.write_obj(abi::PD_ADDR | table, GuestAddress(abi::PDPT_ADDR)).map_err(failed)?;
    for page in 0..abi::RAM_BYTES as u64 / LARGE_PAGE_BYTES {
        let entry = (page * LARGE_PAGE_BYTES) | table | PAGE_LARGE;
        memory.write_obj(entry, GuestAddress(abi::PD_ADDR + page * 8)).map_err(failed)?;
    }
    for vcpu in 0..u64::from(vcpus) {
        let tss = abi::TSS_ADDR + vcpu * abi::TSS_STRIDE;
        let rsp0 = abi::STACKS_ADDR + vcpu * abi::STACK_BYTES + abi::STACK_BYTES / 4;
        memory.write_obj(rsp0, GuestAddress(tss + TSS_RSP0)).map_err(failed)?;
        // Beyond the limit: no I/O bitmap.
        memory.write_obj(TSS_LIMIT as u16 + 1, GuestAddress(tss + TSS_IO_MAP)).map_err(failed)?;
    }
    Ok(())
}

/// Changes `sregs`, as KVM returned them, to the state that the guest expects.
pub(crate) fn set_sregs(sregs: &mut kvm_sregs, vcpu: u32) {
    let data = segment(abi::DS_USER, SEGMENT_DATA, 3);
    sregs.cs = kvm_segment { l: 1, db: 0, ..segment(abi::CS_KERNEL, SEGMENT_CODE, 0) };
    sregs.ss = segment(abi::DS_KERNEL, SEGMENT_DATA, 0);
    // User segments, because a switch to CPL 3 clears segments that it may not use.
    sregs.ds = data;
    sregs.es = data;
    sregs.fs = data;
    sregs.gs = data;
    sregs.tr = kvm_segment {
        base: abi::TSS_ADDR + u64::from(vcpu) * abi::TSS_STRIDE,
        limit: TSS_LIMIT,
        selector: abi::TR,
        type_: SEGMENT_TSS_BUSY,
        present: 1,
        ..Default::default()
    };
    sregs.ldt = kvm_segment { unusable: 1, ..Default::default() };
    sregs.gdt.base = abi::GDT_ADDR;
    sregs.gdt.limit = (GDT.len() * 8 - 1) as u16;
    sregs.idt.base = 0;
    sregs.idt.limit = 0;
    sregs.cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_WP | CR0_PG;
    sregs.cr3 = abi::PML4_ADDR;
    sregs.cr4 = CR4_PAE;
    sregs.efer = EFER_LME | EFER_LMA;
}

pub(crate) fn start_regs(vcpu: u32) -> kvm_regs {
    kvm_regs {
        rip: abi::IMAGE_ADDR,
        rdi: u64::from(vcpu),
        rsp: abi::STACKS_ADDR + u64::from(vcpu + 1) * abi::STACK_BYTES,
        rflags: 2,
        ..Default::default()
    }
}

fn segment(selector: u16, type_: u8, dpl: u8) -> kvm_segment {
    kvm_segment {
        limit: 0xffff_ffff,
        selector,
        type_,
        present: 1,
        dpl,
        db: 1,
        s: 1,
        g: 1,
        ..Default::default()
    }
}
