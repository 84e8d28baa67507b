// SPDX-License-Identifier: MIT OR Apache-2.0
//! What guests and every machine that runs them agree on: the bench guest's shared page (`guest/`), the
//! steps a plan's program becomes, the random numbers, and the area a Linux guest shares with its host
//! (`guest/linux/`). Knows no KVM.

pub mod area;
mod page;
mod program;
pub mod rng;

pub use page::*;
pub use program::{compile, lock_kind, ProgramError};
