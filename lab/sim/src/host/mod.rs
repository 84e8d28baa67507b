// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's scheduler: which vCPU runs next on which pCPU, and when it chooses again.
//!
//! The kernel's fair scheduler (`fair`) or Credit (`credit`) decides; groups, caps, asymmetric
//! vCPUs and the module's turns are components beside the fair one.

mod ask;
mod asym;
mod balance;
mod bandwidth;
mod credit;
mod fair;
mod gangs;
mod groups;
mod housekeeping;
mod scheduler;
mod state;
mod throttle;
mod turns;

pub use asym::Asym;
pub use credit::{CoschedulingStats, Credit, NEIGHBOURS};
pub use fair::{Entity, Tunables, WEIGHT_DEFAULT};
#[cfg(test)]
pub use gangs::Fault;
pub use gangs::{InTurns, Turns, TurnsSeen};
pub use groups::Groups;
pub use housekeeping::Housekeeping;
pub use state::{Policy, Scheduler};
