// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of the command. Each test uses a part of this.

#![allow(dead_code)]

pub mod script;
pub mod vm_host;

use serde_json::Value;
use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The command, without input.
pub fn command<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
    command.args(args).stdin(Stdio::null());
    command
}

pub fn unspin(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What it printed on standard error.
pub fn said(out: &Output) -> String {
    text(&out.stderr)
}

#[track_caller]
pub fn json(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(out)))
}

/// Checks that it ends with this code and these words on standard error, and prints nothing.
#[track_caller]
pub fn fails(args: &[&str], code: i32, words: &str) {
    let out = unspin(args);
    let said = said(&out);
    assert_eq!(out.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "{said}");
    assert!(!said.contains("panicked") && out.stdout.is_empty(), "{said}");
}

/// The JSON of a command that Ctrl-C ends. If the signal comes before the measurement, there is nothing to report.
pub fn interrupted(args: &[&str]) -> Value {
    for seconds in [1, 2, 4, 8, 16, 32] {
        let mut watching = command(args);
        let watching = watching.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(seconds));
        vm_host::signal(watching.id(), libc::SIGINT);
        let out = watching.wait_with_output().unwrap();
        if out.status.success() {
            assert!(said(&out).contains("the results cover the time until then"), "{}", said(&out));
            return json(&out);
        }
    }
    panic!("it never began");
}
