// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands of `unspin-lab` that earlier versions of `unspin` had. For one release `unspin` forwards
//! them.

use crate::exit::Cannot;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

const LAB: &str = "unspin-lab";
const MOVED: [&str; 9] =
    ["agree", "bench", "figures", "generate", "lab", "model", "plan", "replay", "report"];

/// Commands that are missing in a build without the feature `module`.
const LEFT_OUT: [&str; 4] = ["apply", "run", "set", "unload"];

/// If the command is one of `unspin-lab`, replaces this process by `unspin-lab`: `unspin COMMAND` or `unspin
/// help COMMAND`. Returns if the command is `unspin`'s own, or `unspin-lab` cannot be started.
pub fn run_moved(arguments: Vec<OsString>) -> anyhow::Result<()> {
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    let moved = match words.next() {
        Some("help") => words.next(),
        first => first,
    };
    if let Some(left_out) = left_out(moved) {
        return Err(Cannot(format!(
            "`{left_out}` is not in this build, which has only the commands that watch VMs; the package unspin has it"
        ))
        .into());
    }
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

fn left_out(word: Option<&str>) -> Option<&str> {
    word.filter(|word| !cfg!(feature = "module") && LEFT_OUT.contains(word))
}

/// `unspin-lab`: the one next to this program, or else the one in the PATH.
pub fn lab_command() -> Command {
    let beside = std::env::current_exe().map(|program| program.with_file_name(LAB));
    match beside {
        Ok(program) if program.is_file() => Command::new(program),
        _ => Command::new(LAB),
    }
}
