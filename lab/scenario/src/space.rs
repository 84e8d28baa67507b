// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spaces, from which scenarios are drawn by a seed.
//!
//! A draw depends only on the seed, the scenario's number and the drawn key, so that the first N of
//! 2 N scenarios are the same, and a longer list of locks changes no weights.

mod draw;
mod read;

pub use draw::{draw, seed_of_release, Drawn, DrawnVm, COUNT_MAX};
pub use read::{Space, SpaceError};
