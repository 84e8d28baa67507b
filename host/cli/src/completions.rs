// SPDX-License-Identifier: MIT OR Apache-2.0
//! `completions`: for bash, zsh, fish and others.

use crate::out;
use clap::Command;
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub struct Args {
    shell: Shell,
}

pub fn run(args: &Args, name: &'static str, command: &Command) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut typed(name, command), name, &mut text);
    out::print(&String::from_utf8_lossy(&text))
}

/// The command with those subcommands alone that people type: what programs call completes to nothing.
fn typed(name: &'static str, command: &Command) -> Command {
    let subs = command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned();
    let about = command.get_about().cloned().unwrap_or_default();
    Command::new(name).about(about).version(env!("CARGO_PKG_VERSION")).subcommands(subs)
}
