// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fixes how Debian's Bochs enters a guest whose interrupts are off. The library of
//! c/bochs_vm_entry.c, preloaded into Bochs, applies the fix; this file checks that it did.

use crate::error::{io, LabError, Result};
use crate::tool::{missing, which};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

/// The source of the library. A changed source means another emulated computer.
pub(crate) const SOURCE: &str = include_str!("../c/bochs_vm_entry.c");
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bochs_vm_entry.so"));

/// File in the directory in which Bochs is started: LD_PRELOAD does not support paths with spaces.
const FILE: &str = "bochs_vm_entry.so";

/// The prefix of the library's messages, and the message of success.
const SAYS: &str = "unspin: ";
const MENDED: &str = "host interrupts end guests with RFLAGS.IF = 0";

/// Limits of the output of Bochs with its help option, which takes a fifth of a second, and has two
/// kilobytes.
const HELP_WITHIN: Duration = Duration::from_secs(60);
const HELP_BYTES_MAX: u64 = 1 << 20;

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
/// runs Bochs with its help option; a library that is not loaded prints nothing.
pub(crate) fn mended(dir: &Path) -> Result<Mended> {
    let path = dir.join(FILE);
    fs::write(&path, LIBRARY).map_err(io(&path))?;
    let said = help(preloaded(dir), HELP_WITHIN)?;
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
    let said = help(Command::new("bochs"), HELP_WITHIN)?;
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

/// The output of Bochs with its help option, or an error if it does not end within `max`.
fn help(mut bochs: Command, max: Duration) -> Result<String> {
    bochs.args(["-q", "--help"]).env("LC_ALL", "C").stdin(Stdio::null());
    bochs.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = bochs.spawn().map_err(missing(&bochs))?;
    let end = Instant::now() + max;
    let outputs = [child.stderr.take().map(read), child.stdout.take().map(read)];
    let left = || end.saturating_duration_since(Instant::now());
    let said: std::result::Result<Vec<String>, _> =
        outputs.into_iter().flatten().map(|output| output.recv_timeout(left())).collect();
    // A Bochs whose output has ended is done, too.
    let _ = child.kill();
    let _ = child.wait();
    said.map(|said| said.concat()).map_err(|_| {
        let name = bochs.get_program();
        let program = which(&name.to_string_lossy()).unwrap_or_else(|| PathBuf::from(name));
        LabError::HelpHangs { program, after_s: max.as_secs() }
    })
}

/// Reads all of an output, up to the limit.
fn read(output: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = output.take(HELP_BYTES_MAX).read_to_end(&mut bytes);
        let _ = tell.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    told
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
    fn a_bochs_that_hangs_is_named_and_not_waited_for() {
        let shell = |script: &str, max| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]);
            help(shell, max)
        };
        let begin = Instant::now();
        let error = shell("echo Bochs; exec sleep 1000", Duration::from_millis(50)).unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(500));
        assert!(matches!(error, LabError::HelpHangs { .. }), "{error}");
        let (error, path) = (error.to_string(), which("sh").unwrap());
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        assert!(error.contains("--help") && error.contains("apt-get install"), "{error}");
        let said = shell("echo out; echo err >&2", HELP_WITHIN).unwrap();
        assert_eq!(said, "err\nout\n");
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
