// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that `unspin` had before they moved to `unspin-lab`. For one release it runs them there.

use crate::exit::Cannot;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

const LAB: &str = "unspin-lab";
const MOVED: [&str; 9] =
    ["agree", "bench", "figures", "generate", "lab", "model", "plan", "replay", "report"];

/// Runs `unspin-lab` in this process' place where the command is one that moved: `unspin COMMAND` or `unspin help
/// COMMAND`. Returns where the command is `unspin`'s own, or `unspin-lab` cannot be started.
pub fn run_moved(arguments: Vec<OsString>) -> anyhow::Result<()> {
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    let moved = match words.next() {
        Some("help") => words.next(),
        first => first,
    };
    let Some(moved) = moved.filter(|word| MOVED.contains(word)) else { return Ok(()) };
    let mut lab = lab_command();
    let error = lab.args(&arguments).exec();
    if error.kind() != ErrorKind::NotFound {
        return Err(
            anyhow::Error::new(error).context(format!("cannot start {:?}", lab.get_program()))
        );
    }
    Err(Cannot(format!(
        "`{moved}` is a command of {LAB}, which is neither next to this program nor in the PATH; \
         `make build` in a checkout of the project builds it: target/release/{LAB}"
    ))
    .into())
}

/// `unspin-lab`: the one next to this program, else the one in the PATH.
pub fn lab_command() -> Command {
    let beside = std::env::current_exe().map(|program| program.with_file_name(LAB));
    match beside {
        Ok(program) if program.is_file() => Command::new(program),
        _ => Command::new(LAB),
    }
}
