// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes the targets of a journal.

use super::change::{Change, Target};
use super::Back;
use std::io;

/// Reads and writes targets. A missing target is `NotFound`, or has no key.
pub trait Hands {
    /// Distinguishes a target from another with the same name; `None` if it does not exist.
    fn key(&self, target: &Target) -> io::Result<Option<u64>>;

    fn read(&self, target: &Target) -> io::Result<String>;

    fn write(&self, target: &Target, value: &str) -> io::Result<()>;

    /// Whether a value that was read is what was set, as far as the kernel still allows it.
    fn is_still(&self, _target: &Target, is: &str, set: &str) -> bool {
        is == set
    }

    /// Called once these are restored, and before the journal drops them: for what follows from a change, and is
    /// in no journal. `rest` are the changes that stay in it. It may be called again.
    fn restored(&self, _done: &[(Change, Back)], _rest: &[Change]) -> io::Result<()> {
        Ok(())
    }
}
