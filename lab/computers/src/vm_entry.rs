// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fixes how Debian's Bochs enters a guest whose interrupts are off. The library of
//! c/bochs_vm_entry.c, preloaded into Bochs, applies the fix; this file checks that it did.

use crate::error::{io, LabError, Result};
use crate::tool::missing;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The source of the library. A changed source means another emulated computer.
pub(crate) const SOURCE: &str = include_str!("../c/bochs_vm_entry.c");
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bochs_vm_entry.so"));

/// File in the directory in which Bochs is started: LD_PRELOAD does not support paths with spaces.
const FILE: &str = "bochs_vm_entry.so";

/// The prefix of the library's messages, and the message of success.
const SAYS: &str = "unspin: ";
const MENDED: &str = "host interrupts end guests with RFLAGS.IF = 0";

/// Instead of the version of a program that does not print it.
const UNKNOWN: &str = "of an unknown version";

/// Debian's Bochs with fixed VM entries.
pub(crate) struct Mended {
    /// Command that starts it, to which arguments must be added.
    pub command: Command,
    /// Its version, such as "2.7".
    pub version: String,
}

/// The command for the fixed Bochs in `dir`, or an error if it cannot be fixed. To check this, it
/// runs Bochs with its help option, which takes a fifth of a second; a library that is not loaded
/// prints nothing.
pub(crate) fn mended(dir: &Path) -> Result<Mended> {
    let path = dir.join(FILE);
    fs::write(&path, LIBRARY).map_err(io(&path))?;
    let said = help(preloaded(dir))?;
    if words(&said).any(|line| line == MENDED) {
        if let Some(version) = version(&said) {
            return Ok(Mended { command: preloaded(dir), version });
        }
    }
    // If the library cannot fix a Bochs, it ends it before the first output.
    Err(LabError::Unmended { version: installed_version()?, why: why(&said) })
}

/// Version of the installed Bochs.
pub(crate) fn installed_version() -> Result<String> {
    let said = help(Command::new("bochs"))?;
    Ok(version(&said).unwrap_or_else(|| UNKNOWN.into()))
}

/// An error unless a Bochs is installed that prints its version.
pub(crate) fn check_installed() -> Result<()> {
    match installed_version()? {
        version if version == UNKNOWN => {
            Err(LabError::Unmended { version, why: "it does not print its version".into() })
        }
        _ => Ok(()),
    }
}

fn preloaded(dir: &Path) -> Command {
    let mut command = Command::new("bochs");
    command.current_dir(dir).env("LD_PRELOAD", format!("./{FILE}"));
    command
}

/// The output of Bochs with its help option.
fn help(mut bochs: Command) -> Result<String> {
    bochs.args(["-q", "--help"]).env("LC_ALL", "C").stdin(Stdio::null());
    let out = bochs.output().map_err(missing(&bochs))?;
    Ok([out.stderr, out.stdout].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat())
}

/// The library's output.
fn words(said: &str) -> impl Iterator<Item = &str> {
    said.lines().filter_map(|line| line.strip_prefix(SAYS))
}

fn version(said: &str) -> Option<String> {
    let rest = said.split("Bochs x86 Emulator ").nth(1)?;
    rest.split_whitespace().next().map(str::to_string)
}

/// The reason why it is not fixed: the message of the library or of the dynamic linker, or none.
fn why(said: &str) -> String {
    let refused = words(said).find(|line| *line != MENDED).map(str::to_string);
    let ignored = || said.lines().find(|line| line.contains(FILE)).map(str::to_string);
    refused.or_else(ignored).unwrap_or_else(|| {
        "it does not export VMLAUNCH, VMenterInjectEvents and handleInterruptMaskChange".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_says_what_is_waited_for() {
        assert!(SOURCE.contains(&format!("\"{SAYS}{MENDED}\\n\"")));
    }

    #[test]
    fn versions_are_read_and_reasons_found() {
        assert_eq!(version("===\n   Bochs x86 Emulator 2.7\n  Built").as_deref(), Some("2.7"));
        assert_eq!(version("Bochs x86 Emulator "), None);
        assert_eq!(why("x\nunspin: it has two\n"), "it has two");
        let linker = "ERROR: ld.so: object './bochs_vm_entry.so' cannot be preloaded: ignored.";
        assert_eq!(why(&format!("{linker}\nUsage")), linker);
        assert!(why("Usage").contains("does not export"));
    }
}
