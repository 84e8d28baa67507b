// SPDX-License-Identifier: MIT OR Apache-2.0
//! What threads wait for besides spin-locks.

mod barrier;
mod mutex;
mod serial;
mod shootdown;
mod socket;
mod state;

#[cfg(test)]
pub use state::FAN;
pub use state::{sockets, Barrier, Mutex, Socket, GROUP, GROUPS_MAX};
