// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin completions`: for bash, zsh, fish and others.

use crate::out;
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub struct Args {
    shell: Shell,
}

pub fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "unspin", &mut text);
    out::print(&String::from_utf8_lossy(&text))
}
