// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading files that people write, with an error at every mistake and limits on size. Writing files
//! atomically, in directories that are locked by one command at a time. Text that cannot control a terminal.

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
