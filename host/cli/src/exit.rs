// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit codes: 0 success, 1 failure, 2 wrong usage or an error in a file, 77 not possible on this
//! computer.

use std::process::ExitCode;
use unspin_text::{printable_lines, ReadError};

pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
pub const CANNOT: u8 = 77;

/// Wrong usage, or an error in a given file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The reason why this computer cannot do it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Cannot(pub String);

/// The reason is already printed; only the exit code remains.
#[derive(Debug, thiserror::Error)]
#[error("exit code {0}")]
pub struct Told(pub u8);

/// A given file cannot be read: either its name is wrong, or this computer failed.
pub fn unread(e: ReadError) -> anyhow::Error {
    match e.is_wrong_file() {
        true => Usage(e.to_string()).into(),
        false => e.into(),
    }
}

/// Prints the error of `program`, if any, and returns its exit code.
pub fn code(program: &str, result: anyhow::Result<()>) -> ExitCode {
    let Err(e) = result else {
        return ExitCode::SUCCESS;
    };
    if is_broken_pipe(&e) {
        return ExitCode::SUCCESS;
    }
    if let Some(Told(code)) = e.downcast_ref() {
        return ExitCode::from(*code);
    }
    say!("{program}: {}", said(&e));
    if e.downcast_ref::<Usage>().is_some() {
        ExitCode::from(USAGE)
    } else if e.downcast_ref::<Cannot>().is_some() {
        ExitCode::from(CANNOT)
    } else {
        ExitCode::from(FAILED)
    }
}

/// An error and its causes, safe for a terminal. A cause that its error already contains is not
/// repeated. Control characters of quoted input are replaced.
pub fn said(e: &anyhow::Error) -> String {
    let mut all = String::new();
    for cause in e.chain().map(ToString::to_string) {
        if all.is_empty() {
            all = cause;
        } else if !all.contains(&cause) {
            all = format!("{all}: {cause}");
        }
    }
    printable_lines(&all)
}

/// The reader of our output has closed the pipe.
fn is_broken_pipe(e: &anyhow::Error) -> bool {
    e.chain()
        .filter_map(|c| c.downcast_ref::<std::io::Error>())
        .any(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_cause_is_said_once() {
        let missing = unspin_text::write_atomic("/nonexistent/x".as_ref(), b"").unwrap_err();
        let text = said(&missing.into());
        assert!(text.starts_with("cannot write /nonexistent/x: No such file"), "{text}");
        assert_eq!(text.matches("os error 2").count(), 1, "{text}");
        let missing = std::fs::read("/nonexistent/x").context("cannot read x").unwrap_err();
        assert_eq!(said(&missing), "cannot read x: No such file or directory (os error 2)");
    }

    #[test]
    fn an_error_cannot_command_the_terminal() {
        let evil = anyhow::anyhow!("two\nlines\u{1b}[2J").context("a\u{9b}b");
        assert_eq!(said(&evil), "a\u{fffd}b: two\nlines\u{fffd}[2J");
    }
}
