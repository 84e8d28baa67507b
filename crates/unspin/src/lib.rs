// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command `unspin` is made of. `unspin-lab` takes its words, exit codes and the module's
//! loading from here.

#[macro_use]
pub mod out;
pub mod cmd;
mod config;
pub mod detect;
pub mod exit;
pub mod forward;
pub mod host;
mod keep;
mod notify;
mod preload;
pub mod progress;
mod span;
pub mod sysfs;
mod undo;
pub mod vms;
mod watch;
