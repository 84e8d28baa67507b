// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hashes that identify what the lab builds.

use crate::error::{io, Result};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// SHA-256, in hex, of `parts` and their boundaries.
pub fn sha256<T: AsRef<[u8]>>(parts: &[T]) -> String {
    let mut hash = Sha256::new();
    for part in parts.iter().map(T::as_ref) {
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

/// Names and contents of the files in a directory, in a fixed order.
pub(crate) fn contents(dir: &Path) -> Result<Vec<Vec<u8>>> {
    let mut names: Vec<PathBuf> =
        fs::read_dir(dir).map_err(io(dir))?.flatten().map(|entry| entry.path()).collect();
    names.sort();
    let mut parts = Vec::new();
    for name in names.iter().filter(|path| path.is_file()) {
        parts.push(name.file_name().unwrap_or_default().as_encoded_bytes().to_vec());
        parts.push(fs::read(name).map_err(io(name))?);
    }
    Ok(parts)
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
