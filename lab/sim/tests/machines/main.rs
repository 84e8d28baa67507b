// SPDX-License-Identifier: MIT OR Apache-2.0
//! What small machines do. One program: each would compile and link the same again.

#[path = "../common/mod.rs"]
mod common;

mod asym;
mod bandwidth;
mod choice;
mod cores;
mod credit;
mod exits;
mod golden;
mod groups;
mod guest;
mod housekeeping;
mod metamorphic;
mod quota;
mod thresholds;
mod turns;
