// SPDX-License-Identifier: MIT OR Apache-2.0
//! The area that a guest shares with its host (guest/linux/area.h), in a file.

use std::fs::OpenOptions;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{null_mut, NonNull};
use unspin_guest_abi::area::{Area, BYTES};

/// The area, mapped.
pub struct AreaFile {
    area: NonNull<Area>,
}

impl AreaFile {
    /// Maps `bytes` bytes at `offset` of a file, and creates the file if it is missing.
    pub fn make(path: &Path, offset: u64, bytes: u64) -> AreaFile {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        file.set_len(bytes).unwrap();
        let (access, offset) = (libc::PROT_READ | libc::PROT_WRITE, offset as libc::off_t);
        // SAFETY: a new mapping of a file that is long enough, anywhere.
        let at = unsafe {
            libc::mmap(null_mut(), BYTES, access, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        AreaFile { area: NonNull::new(at.cast()).unwrap() }
    }
}

impl Deref for AreaFile {
    type Target = Area;

    fn deref(&self) -> &Area {
        // SAFETY: mapped as long as this is there, page-aligned, and all numbers in it are atomics.
        unsafe { self.area.as_ref() }
    }
}

impl Drop for AreaFile {
    fn drop(&mut self) {
        // SAFETY: what `make` mapped.
        unsafe { libc::munmap(self.area.as_ptr().cast(), BYTES) };
    }
}
