// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `unspin`.

#[macro_use]
extern crate unspin_cli;
mod cmd;
#[cfg(feature = "module")]
mod config;
#[cfg(feature = "module")]
mod keep;
mod notify;
#[cfg(feature = "module")]
mod preload;
#[cfg(feature = "module")]
mod program;
mod span;
mod undo;
mod watch;

use clap::FromArgMatches;
use std::process::ExitCode;
use unspin_cli::{exit, help, host, out, progress, sysfs, vms};
use unspin_text::fit;

/// Commands that are missing in a build without the feature `module`.
const LEFT_OUT: [&str; 4] = ["apply", "run", "set", "unload"];

/// The command that is asked for, if this build is without it: `unspin COMMAND` or `unspin help COMMAND`.
fn left_out() -> Option<String> {
    let mut words = std::env::args_os().skip(1).filter_map(|word| word.into_string().ok());
    let word = words.next().filter(|word| word != "help").or_else(|| words.next())?;
    (!cfg!(feature = "module") && LEFT_OUT.contains(&word.as_str())).then_some(word)
}

fn main() -> ExitCode {
    if let Some(word) = left_out() {
        let why = format!(
            "`{word}` is not in this build, which has only the commands that watch VMs; the package unspin has it"
        );
        return exit::code("unspin", Err(exit::Cannot(why).into()));
    }
    let cli = cmd::Cli::from_arg_matches(&help::matches(cmd::command()));
    let cli = cli.unwrap_or_else(|e| help::end(&e));
    exit::code("unspin", cmd::run(cli))
}
