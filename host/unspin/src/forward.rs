// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that `unspin` had before they moved to `unspin-lab`. For one release it runs them there.

use crate::exit::Cannot;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

pub const LAB: &str = "unspin-lab";
const MOVED: [&str; 9] =
    ["agree", "bench", "figures", "generate", "lab", "model", "plan", "replay", "report"];

/// Becomes `unspin-lab` where the command is one of its, `unspin COMMAND` or `unspin help COMMAND`: that
/// next to this program, else that in the PATH. Returns where the command is `unspin`'s own.
pub fn to_the_lab(arguments: Vec<OsString>) -> anyhow::Result<()> {
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    let moved = match words.next() {
        Some("help") => words.next(),
        first => first,
    };
    let Some(moved) = moved.filter(|word| MOVED.contains(word)) else { return Ok(()) };
    let beside = std::env::current_exe().map(|program| program.with_file_name(LAB));
    for program in beside.into_iter().chain([PathBuf::from(LAB)]) {
        let error = Command::new(&program).args(&arguments).exec();
        if error.kind() != ErrorKind::NotFound {
            return Err(anyhow::Error::new(error).context(format!("cannot start {program:?}")));
        }
    }
    Err(Cannot(format!(
        "`{moved}` is a command of {LAB}, which is neither next to this program nor in the PATH; \
         `make build` in a checkout of the project builds it: target/release/{LAB}"
    ))
    .into())
}

/// How to run unspin-lab with these arguments and take what it prints.
pub fn lab_command() -> Command {
    let beside = std::env::current_exe().map(|program| program.with_file_name(LAB));
    match beside {
        Ok(program) if program.is_file() => Command::new(program),
        _ => Command::new(LAB),
    }
}
