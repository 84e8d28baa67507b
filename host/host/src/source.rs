// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the module's sources are, where what is built from them is kept, and what builds of it need and say.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines shown of what a compiler said.
const ERRORS_SHOWN: usize = 8;

/// The module's sources: `UNSPIN_ROOT`, or the checkout this program was built from. An installed
/// program was built elsewhere, in a place that may be anybody's here: its sources are those of package
/// unspin-dkms.
pub fn source_tree() -> PathBuf {
    match std::env::var_os("UNSPIN_ROOT") {
        Some(root) => PathBuf::from(root),
        None if is_installed() => {
            Path::new("/usr/src").join(concat!("unspin-", env!("CARGO_PKG_VERSION")))
        }
        None => Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .unwrap_or(Path::new("/"))
            .into(),
    }
}

/// Where the folders kmod, policy and uapi are, which the module is built from: core of a checkout, or all of
/// what package unspin-dkms installs.
pub fn module_source() -> PathBuf {
    let core = source_tree().join("core");
    if core.is_dir() {
        core
    } else {
        source_tree()
    }
}

/// Where what is fetched and built is kept: `out` of the checkout, or what is the user's own.
pub fn work_dir() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    // SAFETY: takes nothing and cannot fail.
    match unsafe { libc::geteuid() } {
        _ if !is_installed() => source_tree().join("out"),
        0 => PathBuf::from("/var/cache/unspin"),
        _ => cache.or_else(home).unwrap_or_else(|| PathBuf::from("out")).join("unspin"),
    }
}

/// Whether this program is one of a package, or one file for any computer: not of a checkout.
pub fn is_installed() -> bool {
    cfg!(target_feature = "crt-static")
        || std::env::current_exe().is_ok_and(|program| program.starts_with("/usr/bin"))
}

/// The release of the kernel that headers belong to; `None` where they are not there.
pub fn release_of_headers(headers: &Path) -> Option<String> {
    let text = fs::read_to_string(headers.join("include/generated/utsrelease.h")).ok()?;
    Some(text.split('"').nth(1).unwrap_or("no release").to_string())
}

/// The compiler's errors in a build's log, or what the module's Kbuild refuses; the last lines of such a log only show that it failed.
pub fn errors_in_log(log: &Path) -> Vec<String> {
    let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let is_error = |line: &&str| {
        line.contains("error: ") || line.starts_with("ERROR: ") || line.contains("*** unspin: ")
    };
    text.lines().filter(is_error).take(ERRORS_SHOWN).map(str::to_string).collect()
}
