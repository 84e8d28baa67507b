// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the lab's tools, and writes their output to a log.

use crate::error::{io, LabError, Result};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unspin_vmm::ends_with_this_thread;

/// Debian packages of tools that the lab calls, where they are called otherwise.
const PACKAGES: &[(&str, &str)] = &[
    ("bochs", "bochs bochsbios vgabios"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("xz", "xz-utils"),
    ("ninja", "ninja-build"),
    ("strip", "binutils"),
    ("dpkg-deb", "dpkg"),
    ("apt-get", "apt"),
    ("apt-cache", "apt"),
    ("unshare", "util-linux"),
    ("chroot", "coreutils"),
    ("ldd", "libc-bin"),
    ("pahole", "dwarves"),
];

pub(crate) fn package_of(tool: &str) -> &str {
    PACKAGES.iter().find(|(name, _)| *name == tool).map_or(tool, |(_, package)| package)
}

/// The error for a tool that is not on this computer.
pub(crate) fn absent(tool: &str) -> LabError {
    LabError::MissingTool { tool: tool.into(), package: package_of(tool).into() }
}

/// The missing tools, with their packages.
pub fn missing_tools(tools: &[&str]) -> Vec<(String, String)> {
    tools
        .iter()
        .filter(|tool| which(tool).is_none())
        .map(|tool| (tool.to_string(), package_of(tool).to_string()))
        .collect()
}

pub(crate) fn which(tool: &str) -> Option<std::path::PathBuf> {
    // Without a PATH programs are started from these directories.
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    std::env::split_paths(&path).map(|dir| dir.join(tool)).find(|file| is_program(file))
}

/// Whether this is a file that this user may execute.
pub(crate) fn is_program(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(name) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the name is a valid string for the length of the call.
    path.is_file() && unsafe { libc::access(name.as_ptr(), libc::X_OK) == 0 }
}

/// The message of tools for ENOSPC.
const NO_SPACE: &str = "No space left on device";

/// Whether the file system of `path` has no free space.
pub(crate) fn is_full(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: statvfs is plain data, and both pointers are valid.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    unsafe { libc::statvfs(path.as_ptr(), &mut found) == 0 && found.f_bavail == 0 }
}

/// The last lines of a file, for an error message.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
    let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = all.len().saturating_sub(lines);
    all[from..].iter().map(|line| format!("    {line}\n")).collect()
}

/// Interval of looks at a running tool.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs a command to its end, or until `stop` is set. Both outputs go to `log`.
pub(crate) fn run(what: &str, command: &mut Command, log: &Path, stop: &AtomicBool) -> Result<()> {
    run_watched(what, command, log, stop, &mut || {})
}

/// As [`run`]; calls `look` repeatedly until the command ends.
pub(crate) fn run_watched(
    what: &str,
    command: &mut Command,
    log: &Path,
    stop: &AtomicBool,
    look: &mut dyn FnMut(),
) -> Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(log).map_err(io(log))?;
    let second = file.try_clone().map_err(io(log))?;
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(file).stderr(second);
    let status = wait(command, stop, look).map_err(missing(command))?;
    // Ctrl-C also reaches the tool, so its failure is not an error then.
    if stop.load(Ordering::Relaxed) {
        return Err(LabError::Interrupted);
    }
    if status.success() {
        return Ok(());
    }
    let tail = tail(log, 8);
    let dir = log.parent().unwrap_or(log);
    if tail.contains(NO_SPACE) || is_full(dir) {
        return Err(LabError::NoSpace { path: dir.to_path_buf() });
    }
    Err(LabError::Step {
        what: what.to_string(),
        status: status.to_string(),
        log: log.to_path_buf(),
        tail,
    })
}

/// Waits for the command's end, and asks it to end once `stop` is set, or when this process is
/// killed.
fn wait(
    command: &mut Command,
    stop: &AtomicBool,
    look: &mut dyn FnMut(),
) -> std::io::Result<ExitStatus> {
    let mut child = ends_with_this_thread(command, libc::SIGTERM).spawn()?;
    let mut asked = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.load(Ordering::Relaxed) && !asked {
            asked = true;
            // SAFETY: kill only sends a signal; the child is not waited for yet, so the pid is its.
            unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
        }
        look();
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Standard output of a command, or `None` if it fails.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let out =
        command.env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Why a program does not start: it is missing from the PATH, or it is there and broken.
pub fn missing(command: &Command) -> impl FnOnce(std::io::Error) -> LabError {
    let program = PathBuf::from(command.get_program());
    move |source| {
        let tool = program.to_string_lossy().into_owned();
        let is_missing = source.kind() == std::io::ErrorKind::NotFound
            && !tool.contains('/')
            && which(&tool).is_none();
        match is_missing {
            true => absent(&tool),
            false => LabError::CannotStart { program, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use unspin_scratch::Scratch;

    #[test]
    fn a_broken_program_is_not_called_missing() {
        let dir = Scratch::new();
        let program = dir.write("program", "no program\n");
        let start = |program: &Path| {
            let log = dir.join("log");
            let command = &mut Command::new(program);
            run("starting it", command, &log, &AtomicBool::new(false)).unwrap_err()
        };
        for broken in [&program, &dir.join("none")] {
            assert!(!is_program(broken));
            let error = start(broken).to_string();
            assert!(error.starts_with(&format!("cannot start {}", broken.display())), "{error}");
        }
        let error = start(Path::new("unspin-no-program"));
        assert!(matches!(error, LabError::MissingTool { .. }), "{error}");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        assert!(is_program(&program) && !is_program(&dir));
    }
}
