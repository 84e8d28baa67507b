// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tells things that were made from each other.

use sha2::{Digest, Sha256};

/// SHA-256, in hex, of `parts` and of where one ends and the next begins.
pub fn sha256(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
