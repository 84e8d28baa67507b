// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin lab`: emulated computers.

use crate::exit::Cannot;
use crate::machine::emulated::{explain, open, series};
use crate::out;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where kernels and boots are kept [default: out/lab].
    #[arg(long, global = true, value_name = "DIR")]
    lab_dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Fetch a kernel and build the module for it.
    Build(Kernel),
    /// Boot a computer and show its console.
    Boot(Kernel),
    /// Boot a computer with a shell on its console.
    Shell(Kernel),
    /// Remove kernels and boots.
    Clean,
}

#[derive(Debug, clap::Args)]
struct Kernel {
    /// Kernel series.
    #[arg(long, default_value = "6.12")]
    kernel: String,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Build(k) => {
            let made = open(args.lab_dir.as_deref())?
                .build(series(&k.kernel)?, &mut |text| eprintln!("{text}"))
                .map_err(explain)?;
            out::print(&format!("{}\n", made.release))
        }
        Command::Boot(_) | Command::Shell(_) => {
            Err(Cannot("this build has no computer to sit at; use bench".to_string()).into())
        }
        Command::Clean => open(args.lab_dir.as_deref())?.clean().map_err(explain),
    }
}
