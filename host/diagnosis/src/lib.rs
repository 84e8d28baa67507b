// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes what a VM loses, to which causes, and what would help, from the time of its vCPUs in
//! each [`State`]. Other crates measure the states. [`spinners`] finds the code in which vCPUs spin.

mod access;
mod advice;
mod advise;
mod cause;
pub mod devices;
pub mod exits;
mod idle;
mod judge;
mod machine;
pub mod pairs;
mod remedy;
mod right_size;
pub mod spinners;
mod state;
mod words;

pub use access::{groups, Access, Accessed, Group};
pub use advice::{Advice, Quota, Setting};
pub use advise::advice;
pub use cause::{Cause, Sure};
pub use devices::Kind;
pub use judge::{
    dominant, dominant_of, losses, remainder, user_spin_share, Did, Loss, DOMINANT_SHARE_MIN,
};
pub use machine::{Launcher, Machine, Options};
pub use right_size::{right_size, RightSize};
pub use state::{State, Times};
pub use words::{Waits, Words};
