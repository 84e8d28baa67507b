// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of results that are made up. One program: each would compile and link the same again.

mod common;
mod diagnosis;
mod figures;
mod forms;
mod linux;
mod matrix;
mod shards;
mod shares;
mod wakeups;
mod worlds;
