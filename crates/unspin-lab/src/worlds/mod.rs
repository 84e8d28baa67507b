// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worlds of machine `sim`: what a scenario, or the model, does not know, and the plans in which it is
//! drawn.

mod inputs;
mod plans;
pub mod time;

pub use inputs::{Inputs, ERROR};
pub use plans::{Design, Source};
