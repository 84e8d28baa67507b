// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worlds of machine `sim`: the unknown values of a scenario or of the model, and the plans in
//! which they are drawn.

mod inputs;
mod plans;
pub mod time;

pub use inputs::{Inputs, ERROR};
pub use plans::{Design, Source};
