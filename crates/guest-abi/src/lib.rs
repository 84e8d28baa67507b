// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the bench guest (`guest/`) and every machine that runs its programs agree on: the shared
//! page, the steps a plan's program becomes, and the random numbers. Knows no KVM.

mod page;
mod program;
pub mod rng;

pub use page::*;
pub use program::{compile, lock_kind, ProgramError};
