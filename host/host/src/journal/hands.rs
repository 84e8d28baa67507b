// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading and writing what a journal notes changes of.

use super::change::Target;
use std::io;

/// Reads and writes targets. A missing target is `NotFound`, or has no key.
pub trait Hands {
    /// What tells a target from another of the same name; `None` where it is not there.
    fn key(&self, target: &Target) -> io::Result<Option<u64>>;

    fn read(&self, target: &Target) -> io::Result<String>;

    fn write(&self, target: &Target, value: &str) -> io::Result<()>;
}
