// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the commands `unspin` and `unspin-lab` share: output and exit codes, help and manuals, and the
//! module: whether this host can have it, loading it, its settings, and VMs by name.

#[macro_use]
pub mod out;
pub mod bounds;
pub mod completions;
pub mod detect;
pub mod distribution;
pub mod exit;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
pub mod help;
pub mod host;
mod kernel;
pub mod man;
pub mod progress;
pub mod seconds;
pub mod sysfs;
pub mod verdict;
pub mod vms;
