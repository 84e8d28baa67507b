// SPDX-License-Identifier: MIT OR Apache-2.0
//! The area that a Linux guest shares with its host: the mirror of guest/linux/area.h, which
//! explains each word. It is shared memory, so every number is an atomic.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};
use unspin_scenario::result::RESPONSE_BUCKETS;

pub const ADDR: u64 = 0x80_0000;
pub const BYTES: usize = 0x1_0000;
/// Word of the guest kernel's command line that keeps the kernel off it.
pub const RESERVE: &str = "memmap=64K$0x800000";
pub const MAGIC: u64 = 0x6165_7261_7073_6e75;
pub const VERSION: u32 = 3;
/// Word of the guest kernel's command line that makes the runner load unspin-guest, with its
/// parameters.
pub const MODULE_WORD: &str = "UNSPIN_GUEST_MODULE=";
pub const SLOTS: usize = 960;
pub const NAME_BYTES: usize = 64;
pub const TEXT_BYTES: usize = 64;
pub const ERROR_BYTES: usize = 256;

/// Values of `state`: what the runner does.
pub const STATE_READY: u32 = 1;
pub const STATE_RUNS: u32 = 2;
pub const STATE_FAILED: u32 = 3;
pub const STATE_ENDED: u32 = 4;

/// Written by the guest's runner.
#[repr(C)]
pub struct Guest {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub state: AtomicU32,
    pub answered: AtomicU32,
    pub exit_status: AtomicU32,
    pub starts: AtomicU32,
    pub pids: AtomicU32,
    pub boots: AtomicU32,
    pub online: AtomicU32,
    pad: [u32; 6],
}

/// Written by the host.
#[repr(C)]
pub struct Host {
    pub seed: AtomicU64,
    pub serial: AtomicU32,
    pad: [u32; 13],
    pub program: [AtomicU8; NAME_BYTES],
}

/// What the guest's kernel reports that it uses.
#[repr(C)]
pub struct Found {
    pub kernel: [AtomicU8; TEXT_BYTES],
    pub lock: [AtomicU8; TEXT_BYTES],
    pub ipis: [AtomicU8; TEXT_BYTES],
    pub tlb_flush: [AtomicU8; TEXT_BYTES],
    pub sched_yield: [AtomicU8; TEXT_BYTES],
    pub clocksource: [AtomicU8; TEXT_BYTES],
    pub module: [AtomicU8; TEXT_BYTES],
}

/// A count in its own cache line.
#[repr(C)]
pub struct Slot {
    pub units: AtomicU64,
    pad: [u64; 7],
}

/// Times that a program stores, in TSC cycles.
#[repr(C)]
pub struct Responses {
    pub count: AtomicU64,
    pub cycles: AtomicU64,
    pub hist: [AtomicU64; RESPONSE_BUCKETS],
}

#[repr(C)]
pub struct Area {
    pub guest: Guest,
    pub host: Host,
    pad0: [u8; 0x40],
    pub error: [AtomicU8; ERROR_BYTES],
    pub found: Found,
    pad1: [u8; 0x40],
    pub next_slot: AtomicU32,
    pad2: [u8; 0x3c],
    pub responses: Responses,
    pad3: [u8; 0x1000 - 0xe50],
    pub slots: [Slot; SLOTS],
}

impl Area {
    /// All units counted since the guest's memory was created.
    pub fn units(&self) -> u64 {
        self.slots.iter().map(|slot| slot.units.load(Ordering::Relaxed)).sum()
    }
}

/// The area in a file, mapped.
pub struct Mapped(NonNull<Area>);

impl Mapped {
    /// Maps the area at `offset` of a file that is long enough.
    ///
    /// # Errors
    ///
    /// The system cannot map it.
    pub fn new(file: &File, offset: u64) -> io::Result<Mapped> {
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a new mapping, anywhere.
        let at = unsafe {
            libc::mmap(null_mut(), BYTES, access, libc::MAP_SHARED, fd, offset as libc::off_t)
        };
        match NonNull::new(at.cast()) {
            Some(area) if at != libc::MAP_FAILED => Ok(Mapped(area)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Deref for Mapped {
    type Target = Area;

    fn deref(&self) -> &Area {
        // SAFETY: mapped as long as this is there, page-aligned, and all that others write is atomic.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped, and no longer used.
        unsafe { libc::munmap(self.0.as_ptr().cast(), BYTES) };
    }
}

/// The text in a field, up to its zero byte. Invalid UTF-8 is replaced.
pub fn text(field: &[AtomicU8]) -> String {
    let bytes: Vec<u8> =
        field.iter().map(|b| b.load(Ordering::Relaxed)).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Writes a text into a field. False: it does not fit, and nothing is written.
pub fn set_text(field: &[AtomicU8], text: &str) -> bool {
    if text.len() >= field.len() {
        return false;
    }
    let zeroes = std::iter::repeat(0);
    for (byte, value) in field.iter().zip(text.bytes().chain(zeroes)) {
        byte.store(value, Ordering::Relaxed);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_fits_is_read_as_written() {
        let field: [AtomicU8; 8] = std::array::from_fn(|_| AtomicU8::new(b'x'));
        assert!(set_text(&field, "seven77") && text(&field) == "seven77");
        assert!(set_text(&field, "") && text(&field).is_empty());
        assert!(!set_text(&field, "eight888") && text(&field).is_empty());
    }
}
