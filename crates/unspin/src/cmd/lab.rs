// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin lab`: emulated computers.

use crate::exit::Cannot;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Fetch a kernel and make the images to boot.
    Build(Kernel),
    /// Boot a computer and show its console.
    Boot(Kernel),
    /// Boot a computer with a shell on its console.
    Shell(Kernel),
    /// Remove images and everything fetched.
    Clean,
}

#[derive(Debug, clap::Args)]
struct Kernel {
    /// Kernel series.
    #[arg(long, default_value = "6.12")]
    kernel: String,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let what = match &args.command {
        Command::Build(k) => format!("build {}", k.kernel),
        Command::Boot(k) => format!("boot {}", k.kernel),
        Command::Shell(k) => format!("shell {}", k.kernel),
        Command::Clean => "clean".to_string(),
    };
    Err(Cannot(format!("lab {what}: this build has no lab")).into())
}
