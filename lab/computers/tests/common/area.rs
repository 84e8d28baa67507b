// SPDX-License-Identifier: MIT OR Apache-2.0
//! The area that a guest shares with its host (guest/linux/area.h), in a file.

use std::fs::OpenOptions;
use std::path::Path;
use unspin_guest_abi::area::Mapped;

/// Maps the area at `offset` of a file of `bytes` bytes, and creates the file if it is missing.
pub fn area_file(path: &Path, offset: u64, bytes: u64) -> Mapped {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.set_len(bytes).unwrap();
    Mapped::new(&file, offset).unwrap()
}
