// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spaces, from which scenarios are drawn by a seed.
//!
//! A draw depends only on the seed, the scenario's number and the drawn key. So a larger number of
//! scenarios extends the same list, and a longer list of locks does not change the weights.

mod draw;
mod read;

pub use draw::{draw, seed_of_release, Drawn, DrawnVm, COUNT_MAX};
pub use read::{Space, SpaceError};
