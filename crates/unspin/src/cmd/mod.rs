// SPDX-License-Identifier: MIT OR Apache-2.0
//! One file a subcommand.

mod plan;

use clap::{Parser, Subcommand};

/// Stops vCPUs from spinning for a lock whose holder does not run, and shows what that costs.
#[derive(Debug, Parser)]
#[command(name = "unspin", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the runs a scenario expands to, as JSON.
    #[command(hide = true)]
    Plan(plan::Args),
}

pub fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Plan(args) => plan::run(&args),
    }
}
