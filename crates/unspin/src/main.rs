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
mod sysfs;
mod vms;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cmd::Cli::parse();
    exit::code(cmd::run(cli))
}
