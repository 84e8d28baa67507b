// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `unspin`.

#[macro_use]
mod out;
mod boots;
mod cmd;
mod config;
mod exit;
mod host;
mod keep;
mod load;
mod machine;
mod notify;
mod preload;
mod progress;
mod share;
mod span;
mod sysfs;
mod undo;
mod vms;
mod watch;
mod worlds;

use clap::FromArgMatches;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cmd::Cli::from_arg_matches(&cmd::command().get_matches());
    let cli = cli.unwrap_or_else(|e| e.exit());
    exit::code(cmd::run(cli))
}
