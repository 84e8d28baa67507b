// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `unspin`.

#[macro_use]
extern crate unspin_cli;
mod cmd;
#[cfg(feature = "module")]
mod config;
mod forward;
#[cfg(feature = "module")]
mod keep;
mod notify;
#[cfg(feature = "module")]
mod preload;
#[cfg(feature = "module")]
mod program;
mod span;
mod undo;
mod watch;

use clap::FromArgMatches;
use std::process::ExitCode;
use unspin_cli::{exit, help, host, out, progress, sysfs, vms};
use unspin_text::fit;

fn main() -> ExitCode {
    if let Err(error) = forward::to_lab(std::env::args_os().skip(1).collect()) {
        return exit::code("unspin", Err(error));
    }
    let cli = cmd::Cli::from_arg_matches(&help::matches(cmd::command()));
    let cli = cli.unwrap_or_else(|e| help::end(&e));
    exit::code("unspin", cmd::run(cli))
}
