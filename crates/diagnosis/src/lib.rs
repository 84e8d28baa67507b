// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the time that vCPUs spend in each [`State`] to what their VM loses, on what, and what would
//! help. It only computes: who measures the states is not its concern.

pub mod exits;
mod state;

pub use state::{State, Times};
