// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of all code there is on this computer would pass for a loop with a PAUSE.

use std::fs;
use unspin_policy::userspin::{has_pause, MARGIN_BYTES};

/// What is read of a loop whose samples are 64 bytes apart.
const WINDOW_BYTES: usize = 64 + 2 * MARGIN_BYTES as usize;

/// Windows of code in a directory's programs and libraries, and how many of them have a PAUSE.
pub fn windows(dir: &str) -> (u64, u64) {
    let mut found = (0, 0);
    let files = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    // A link leads to code that is counted where it is.
    for path in files.filter(|path| path.is_file() && !path.is_symlink()) {
        let elf = fs::read(&path).unwrap_or_default();
        for code in executable(&elf) {
            for window in code.chunks_exact(WINDOW_BYTES) {
                found.0 += 1;
                found.1 += u64::from(has_pause(window));
            }
        }
    }
    found
}

/// The executable segments of a 64-bit ELF file.
fn executable(elf: &[u8]) -> Vec<&[u8]> {
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let field = elf.get(at..at + bytes)?;
        Some(field.iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte)))
    };
    let is_elf = elf.starts_with(b"\x7fELF\x02\x01");
    let headers = (|| Some((number(32, 8)?, number(54, 2)?, number(56, 2)?)))();
    let Some((first, size, count)) = headers.filter(|_| is_elf) else { return Vec::new() };
    let segment = |i: usize| {
        let header = first.checked_add(i * size)?;
        let is_code = number(header, 4)? == 1 && number(header + 4, 4)? & 1 == 1;
        let (at, bytes) = (number(header + 8, 8)?, number(header + 32, 8)?);
        elf.get(at..at.checked_add(bytes)?).filter(|_| is_code)
    };
    (0..count).filter_map(segment).collect()
}
