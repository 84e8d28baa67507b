// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command, as tests of what it refuses run it.

use std::process::{Command, Output, Stdio};

pub fn unspin(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

/// It ends with that code, says those words, and prints nothing.
#[track_caller]
pub fn fails(args: &[&str], code: i32, words: &str) {
    let out = unspin(args);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "{said}");
    assert!(!said.contains("panicked") && out.stdout.is_empty(), "{said}");
}
