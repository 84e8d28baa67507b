// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-house check` finds what is not as agreed; `unspin-house draw` draws the pictures of docs/.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use unspin_house::{check, draw, rotten, Workspace};

#[derive(Parser)]
#[command(about = "The project's rooms: drawn, and checked")]
struct Args {
    /// The project's root
    #[arg(long, default_value = ".", global = true)]
    root: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Circles of files, arrows that run back up, files and functions that are too long
    Check,
    /// docs/house.svg, and an .svg for each .toml of docs/
    Draw,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let workspace = Workspace::read(&args.root)?;
    match args.command {
        Command::Check => {
            let findings = check(&workspace)?;
            print!("{findings}");
            let rotten = rotten(&workspace)?;
            for line in &rotten {
                println!("{line}");
            }
            let is_clean = findings.is_clean() && rotten.is_empty();
            Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Draw => {
            draw(&workspace)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
