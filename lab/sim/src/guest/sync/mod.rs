// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barriers, mutexes, sockets and interrupts: objects other than spin-locks for which threads wait.

mod barrier;
mod mutex;
mod serial;
mod shootdown;
mod socket;
mod state;

#[cfg(test)]
pub use state::FAN;
pub use state::{sockets, Barrier, Mutex, Socket, GROUP, GROUPS_MAX};
