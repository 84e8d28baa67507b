// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin man`: the manual page.

use crate::out;
use anyhow::Context;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write a page for the command and each subcommand here.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub fn run(args: &Args, command: clap::Command) -> anyhow::Result<()> {
    match &args.dir {
        Some(dir) => std::fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(command, dir))
            .with_context(|| format!("cannot write manual pages to {}", dir.display())),
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command).render(&mut text)?;
            out::print(&String::from_utf8_lossy(&text))
        }
    }
}
