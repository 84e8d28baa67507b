// SPDX-License-Identifier: MIT OR Apache-2.0
//! The project's rooms and the arrows between them: drawn, and held to what was agreed.
//!
//! A room is a crate or a directory of C. Which room knows which comes from cargo, from `#include`
//! lines and from what build scripts read. Inside a room files know one another too: by paths, methods
//! and fields in Rust, by includes and declarations in C. [`check`] finds circles of files, arrows that
//! run against the order of floors, and files and functions that are too long.

mod arrow;
mod c;
mod check;
mod circle;
mod files;
mod floors;
mod function;
mod length;
mod picture;
mod rooms;
mod rust;
mod workspace;

pub use check::{check, Findings};
pub use function::Function;
pub use picture::{draw, rotten, Steps};
pub use rooms::Rooms;
pub use workspace::Workspace;
