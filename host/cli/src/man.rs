// SPDX-License-Identifier: MIT OR Apache-2.0
//! `man`: the manual pages.

use crate::exit::Usage;
use crate::out;
use anyhow::Context;
use clap::Command;
use clap_mangen::Man;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What all commands end with.
const EXIT_STATUS: &[u8] = br#".SH "EXIT STATUS"
.TP
\fB0\fR
Success.
.TP
\fB1\fR
Failure; standard error has the reason.
.TP
\fB2\fR
Wrong usage, or an error in a file.
.TP
\fB77\fR
Not possible on this computer; standard error has the reason.
"#;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write one page per command to this directory, which must exist.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub fn run(args: &Args, command: Command) -> anyhow::Result<()> {
    match &args.dir {
        Some(dir) if !dir.is_dir() => Err(Usage(format!(
            "{}: no such directory; {name} man DIR writes all pages to an existing directory, and \
             man {name}-SUBCOMMAND shows one page",
            dir.display(),
            name = command.get_name(),
        ))
        .into()),
        Some(dir) => {
            let mut command = command.disable_help_subcommand(true);
            command.build();
            write_all(command, dir)
                .with_context(|| format!("cannot write manual pages to {}", dir.display()))
        }
        None => out::print(&String::from_utf8_lossy(&page(&Man::new(command))?)),
    }
}

/// A page per command that people type.
fn write_all(command: Command, dir: &Path) -> io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write_all(sub.clone(), dir)?;
    }
    let man = Man::new(command);
    fs::write(dir.join(man.get_filename()), page(&man)?)
}

fn page(man: &Man) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    man.render(&mut text)?;
    text.extend_from_slice(EXIT_STATUS);
    Ok(text)
}
