// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes the targets of a journal.

use super::change::Target;
use std::io;

/// Reads and writes targets. A missing target is `NotFound`, or has no key.
pub trait Hands {
    /// Distinguishes a target from another with the same name; `None` if it does not exist.
    fn key(&self, target: &Target) -> io::Result<Option<u64>>;

    fn read(&self, target: &Target) -> io::Result<String>;

    fn write(&self, target: &Target, value: &str) -> io::Result<()>;
}
