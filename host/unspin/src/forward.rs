// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands of `unspin-lab`: `unspin bench …` runs `unspin-lab bench …`.

use crate::exit::Cannot;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

const LAB: &str = "unspin-lab";
const FORWARDED: [&str; 10] =
    ["agree", "bench", "figures", "generate", "lab", "model", "plan", "replay", "report", "try"];

/// Commands that are missing in a build without the feature `module`.
const LEFT_OUT: [&str; 4] = ["apply", "run", "set", "unload"];

/// If the command is one of `unspin-lab` (`unspin COMMAND` or `unspin help COMMAND`), replaces this
/// process by `unspin-lab` with the same arguments. Returns if the command is `unspin`'s own, and fails if
/// `unspin-lab` cannot be started or this build leaves the command out.
pub fn to_lab(arguments: Vec<OsString>) -> anyhow::Result<()> {
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    let command = match words.next() {
        Some("help") => words.next(),
        first => first,
    };
    if let Some(left_out) = left_out(command) {
        return Err(Cannot(format!(
            "`{left_out}` is not in this build, which has only the commands that watch VMs; the package unspin has it"
        ))
        .into());
    }
    let Some(command) = command.filter(|word| FORWARDED.contains(word)) else { return Ok(()) };
    let mut lab = lab_command();
    let error = lab.args(&arguments).exec();
    if error.kind() != ErrorKind::NotFound {
        return Err(
            anyhow::Error::new(error).context(format!("cannot start {:?}", lab.get_program()))
        );
    }
    Err(Cannot(format!(
        "`unspin {command}` runs `{LAB} {command}`, but {LAB} is neither next to this program nor in the PATH; \
         install the Debian package {LAB}, or run `make build` in a checkout of the project, which builds \
         target/release/{LAB}"
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
