// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that people write, read with every mistake named and placed; files that are written whole or
//! not at all, in directories that one command uses at a time; text that cannot command a terminal.

pub mod lock;
pub mod names;
mod problem;
mod reader;
mod show;
mod write;

pub use lock::Lock;
pub use problem::{Problem, Problems};
pub use reader::{no_doubles, or, problem_at, Reader, Table, Value};
pub use show::{counted, printable, printable_lines};
pub use write::{write_atomic, FileError};
