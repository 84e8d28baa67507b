// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit codes: 0 done, 1 failed, 2 the command or a file given to it is wrong, 77 this computer
//! cannot do it.

use std::fmt;
use std::process::ExitCode;

pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
pub const CANNOT: u8 = 77;

/// The command or a file given to it is wrong.
#[derive(Debug)]
pub struct Usage(pub String);

/// This computer cannot do what was asked, and why.
#[derive(Debug)]
pub struct Cannot(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Cannot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}
impl std::error::Error for Cannot {}

/// Says what went wrong, if anything, and how to exit.
pub fn code(result: anyhow::Result<()>) -> ExitCode {
    let Err(e) = result else {
        return ExitCode::SUCCESS;
    };
    if is_broken_pipe(&e) {
        return ExitCode::SUCCESS;
    }
    eprintln!("unspin: {e:#}");
    if e.downcast_ref::<Usage>().is_some() {
        ExitCode::from(USAGE)
    } else if e.downcast_ref::<Cannot>().is_some() {
        ExitCode::from(CANNOT)
    } else {
        ExitCode::from(FAILED)
    }
}

/// Whoever read our output had enough of it.
fn is_broken_pipe(e: &anyhow::Error) -> bool {
    e.chain()
        .filter_map(|c| c.downcast_ref::<std::io::Error>())
        .any(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
