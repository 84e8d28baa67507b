// SPDX-License-Identifier: MIT OR Apache-2.0
//! What threads wait for besides spin-locks.

mod barrier;
mod mutex;
mod serial;
mod shootdown;
mod socket;

pub use barrier::Barrier;
pub use mutex::Mutex;
#[cfg(test)]
pub use socket::FAN;
pub use socket::{sockets, Socket, GROUP, GROUPS_MAX};
