// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's locks as waiting protocols: which vCPUs wait, which is next, and the behaviour of
//! waiters.

mod acquire;
mod halt;
mod hand_over;
mod lease;
pub mod params;
mod preemptable;
mod protocol;
mod pv_queued;
mod pv_ticket;
mod stall;
mod state;

pub use params::{Budgets, TURNS_PER_US};
pub use protocol::Protocol;
pub use state::{Lock, Stalls, Wait, BUCKETS, LOCKS, LOCKS_WITH_SOCKETS};
