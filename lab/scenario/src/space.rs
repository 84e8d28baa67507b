// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spaces: what scenarios are drawn from, by a seed.
//!
//! A draw hangs on the seed, on the scenario's number and on what is drawn alone, so that the first N
//! of 2 N scenarios are the same, and a longer list of locks changes no weights.

mod draw;
mod read;

pub use draw::{draw, seed_of_release, Drawn, DrawnVm, COUNT_MAX};
pub use read::{Space, SpaceError};
