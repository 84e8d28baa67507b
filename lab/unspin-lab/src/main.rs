// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `unspin-lab`.

#[macro_use]
extern crate unspin_cli;
mod boots;
mod cmd;
mod load;
mod machine;
mod progress;
mod share;
mod signals;
mod worlds;

use clap::FromArgMatches;
use std::process::ExitCode;
use unspin_cli::{detect, exit, help, host, out, sysfs, vms};

fn main() -> ExitCode {
    let cli = cmd::Cli::from_arg_matches(&help::matches(cmd::command()));
    let cli = cli.unwrap_or_else(|e| help::end(&e));
    exit::code("unspin-lab", cmd::run(cli))
}
