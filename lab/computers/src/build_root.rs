// SPDX-License-Identifier: MIT OR Apache-2.0
//! An unpacked Debian 13, in which modules are built: headers of its kernels need a compiler and a
//! C library that Debian 12 lacks. No package's scripts run, and nothing is installed on this
//! computer.

use crate::apt::Apt;
use crate::error::{io, LabError, Result};
use crate::kept;
use crate::packages;
use crate::tool;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

/// Commands that a kernel's build needs in addition to the dependencies of its headers.
const PACKAGES: &[&str] =
    &["base-files", "binutils", "coreutils", "dash", "findutils", "grep", "make", "mawk", "sed"];

/// A link that a package's script would create.
const AWK: (&str, &str) = ("mawk", "usr/bin/awk");

/// Run as root of a separate mount namespace, so that no mount outlives the command.
const ENTER: &str = r#"set -e
root=$1 dir=$2
shift 2
mkdir -p "$root$dir"
mount --bind "$dir" "$root$dir"
mount --rbind /proc "$root/proc"
: > "$root/dev/null"
mount --bind /dev/null "$root/dev/null"
exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/usr/sbin LC_ALL=C "$@""#;

/// A complete root.
#[derive(Debug)]
pub(crate) struct BuildRoot {
    dir: PathBuf,
}

impl BuildRoot {
    /// The root in `dir`, if it is complete and contains all of `needs`.
    pub(crate) fn find(dir: &Path, needs: &BTreeSet<String>) -> Option<BuildRoot> {
        let have = fs::read_to_string(dir.join("complete")).ok()?;
        let have: BTreeSet<&str> = have.lines().collect();
        let mut wanted = PACKAGES.iter().copied().chain(needs.iter().map(String::as_str));
        let all = wanted.all(|package| have.contains(package));
        all.then(|| BuildRoot { dir: dir.join("root") })
    }

    /// Creates the root, with its former content and `needs`.
    pub(crate) fn make(
        dir: &Path,
        apt: &Apt,
        needs: &BTreeSet<String>,
        stop: &AtomicBool,
    ) -> Result<BuildRoot> {
        let stamp = dir.join("complete");
        let had = fs::read_to_string(&stamp).unwrap_or_default();
        let mut all: BTreeSet<String> = had.lines().map(str::to_string).collect();
        all.extend(needs.iter().cloned());
        all.extend(PACKAGES.iter().map(|name| name.to_string()));
        let (root, log) = (dir.join("root"), dir.join("fetch.log"));
        for old in [&stamp, &root, &log] {
            kept::remove(old)?;
        }
        fs::create_dir_all(&root).map_err(io(&root))?;
        let names: Vec<String> = all.into_iter().collect();
        let archives = apt.download_with_all(&names, "trixie-backports", &log, stop)?;
        packages::unpack(&archives, &root, &log, stop)?;
        let (mawk, awk) = AWK;
        std::os::unix::fs::symlink(mawk, root.join(awk)).map_err(io(root.join(awk)))?;
        fs::write(&stamp, names.join("\n")).map_err(io(&stamp))?;
        Ok(BuildRoot { dir: root })
    }

    /// A command that runs `program` in the root, in which `dir` is at its own path.
    pub(crate) fn command(&self, program: &str, dir: &Path) -> Result<Command> {
        let dir = fs::canonicalize(dir).map_err(io(dir))?;
        self.check_enter()?;
        let mut command = unshare();
        command.args(["sh", "-c", ENTER, "sh"]).arg(&self.dir).arg(dir).arg(program);
        Ok(command)
    }

    /// Mounting needs root, or a kernel that allows user namespaces.
    fn check_enter(&self) -> Result<()> {
        let mut probe = unshare();
        probe.arg("true").stdin(Stdio::null()).stdout(Stdio::null());
        let out = probe.stderr(Stdio::piped()).output().map_err(tool::missing(&probe))?;
        if out.status.success() {
            return Ok(());
        }
        let detail = String::from_utf8_lossy(&out.stderr).trim().to_string();
        Err(LabError::CannotEnter { root: self.dir.clone(), detail })
    }
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "--propagation", "private"]);
    command
}
