// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of the command, for tests of refusals.

use std::process::{Command, Output, Stdio};

pub fn unspin(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

/// Checks that it ends with this code and these words on standard error, and prints nothing.
#[track_caller]
pub fn fails(args: &[&str], code: i32, words: &str) {
    let out = unspin(args);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "{said}");
    assert!(!said.contains("panicked") && out.stdout.is_empty(), "{said}");
}
