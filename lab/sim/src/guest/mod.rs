// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guests: their programs, threads, locks and other objects for which they wait. A guest knows
//! where its vCPUs are and what things cost. It acts on other parts by effects.

mod build;
mod due;
mod effects;
mod interp;
mod lock;
mod monitor;
mod off_clock;
mod program;
mod state;
mod sync;
mod threads;
mod time;

pub use build::VmSpec;
pub use due::Due;
pub use lock::{params as lock_params, Budgets, Protocol, Stalls};
pub use lock::{LOCKS, LOCKS_WITH_SOCKETS, TURNS_PER_US};
pub use program::compile;
pub use state::{Cpu, Guest};
#[cfg(test)]
pub use state::{Doing, ThreadState};
#[cfg(test)]
pub use sync::FAN;
pub use sync::{GROUP, GROUPS_MAX};
