// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that people write, read with every mistake named and placed, and never without end; files that are written whole or
//! not at all, in directories that one command uses at a time; text that cannot command a terminal.

pub mod fit;
mod framed;
pub mod lock;
pub mod names;
mod problem;
mod read;
mod reader;
mod serde_error;
mod show;
mod write;

pub use framed::Framed;
pub use lock::Lock;
pub use problem::{Problem, Problems};
pub use read::{
    read_file, read_kernel, read_kernel_text, read_text, ReadError, RESULTS_MAX, TEXT_MAX,
};
pub use reader::{no_doubles, or, problem_at, Reader, Table, Value};
pub use serde_error::toml_problems;
pub use show::{counted, printable, printable_lines, shortened, shown};
pub use write::{sweep, write_atomic, FileError};
