// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hashes that identify what the lab builds.

use sha2::{Digest, Sha256};
use std::path::Path;

/// SHA-256, in hex, of `parts` and their boundaries.
pub fn sha256(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(hash)
}

/// SHA-256, in hex, of a file, as by sha256sum.
pub(crate) fn of_file(path: &Path) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    std::io::copy(&mut std::fs::File::open(path)?, &mut hash)?;
    Ok(hex(hash))
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
