// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the time that vCPUs spend in each [`State`] to what their VM loses, on what, and what would
//! help. It only computes; other crates measure the states.

mod access;
mod advice;
mod cause;
pub mod devices;
pub mod exits;
mod judge;
pub mod pairs;
mod state;

pub use access::{groups, Access, Accessed, Group, Kind};
pub use advice::{advice, Advice, Setting};
pub use cause::{Cause, Sure};
pub use judge::{
    dominant, dominant_of, losses, remainder, user_spin_share, Did, Loss, DOMINANT_SHARE_MIN,
};
pub use state::{State, Times};
