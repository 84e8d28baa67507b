// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command, run at the top of the checkout. Each test program uses its part.

#![allow(dead_code)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

pub fn lab(args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspin-lab"));
    command.args(args).current_dir(root).stdin(Stdio::null()).output().unwrap()
}

/// What it said on standard error, which is never a panic.
pub fn said(out: &Output) -> String {
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// Runs it, and expects success.
#[track_caller]
pub fn made(args: &[&str]) -> Output {
    let out = lab(args);
    assert!(out.status.success(), "{args:?}: {}", said(&out));
    out
}

/// Runs it, and expects this exit code and words. Returns what it said.
#[track_caller]
pub fn fails(args: &[&str], code: i32, words: &str) -> String {
    let out = lab(args);
    let said = said(&out);
    assert_eq!(out.status.code(), Some(code), "{args:?}: {said}");
    assert!(said.contains(words), "{args:?}: {said}");
    said
}
