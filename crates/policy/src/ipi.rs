// SPDX-License-Identifier: MIT OR Apache-2.0
//! IPI-aware directed yield (policy/ipi.h): to whom a vCPU yields that waits for answers to its
//! interrupts.

/// The functions as `policy/ipi.h` declares them; the safe ones are below.
pub mod raw {
    extern "C" {
        pub fn ipi_pick(slots: *const super::Slot, count: u32, caller: u32, excluded: u64) -> i32;
    }
}

/// Most vCPUs of a VM it chooses among.
pub const SLOTS_MAX: usize = 64;

/// One vCPU as the spinning one sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Any clock that never runs back within a VM.
    pub preempted_at: u64,
    /// Wants a pCPU and has none (0 or 1).
    pub ready: u8,
    /// Has not taken an interrupt that the caller sent (0 or 1).
    pub owes_answer: u8,
    /// 0.
    pub pad: [u8; 6],
}

/// The vCPU to yield to: ready and owing `caller` an answer, preempted longest ago. `None` where
/// nobody is, or above [`SLOTS_MAX`] slots.
pub fn pick(slots: &[Slot], caller: usize, excluded: u64) -> Option<usize> {
    let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
    let caller = u32::try_from(caller).unwrap_or(u32::MAX);
    // SAFETY: count slots are there to read; above SLOTS_MAX none is.
    let index = unsafe { raw::ipi_pick(slots.as_ptr(), count, caller, excluded) };
    usize::try_from(index).ok()
}

const _: () = assert!(std::mem::size_of::<Slot>() == 16);
