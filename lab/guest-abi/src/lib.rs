// SPDX-License-Identifier: MIT OR Apache-2.0
//! Definitions shared by guests and every machine that runs them: the bench guest's shared page
//! (`guest/`), the steps of a compiled program, the random numbers, and the area that a Linux guest
//! shares with its host (`guest/linux/`). Independent of KVM.

pub mod area;
mod page;
mod program;
pub mod rng;

pub use page::*;
pub use program::{compile, lock_kind, ProgramError};
