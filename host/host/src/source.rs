// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module's sources, the directory for builds, and the requirements and errors of a build.

use crate::euid;
use std::fs;
use std::path::{Path, PathBuf};

/// Number of lines shown of a compiler's errors.
const ERRORS_SHOWN: usize = 8;

/// The module's sources: `UNSPIN_ROOT` if it is set and not empty, or the checkout from which this program
/// was built. The checkout of an installed program was on another computer, and that path may belong to
/// anybody here: its sources are those of package unspin-dkms.
pub fn source_tree() -> PathBuf {
    match std::env::var_os("UNSPIN_ROOT").filter(|root| !root.is_empty()) {
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

/// The directory with the folders kmod, policy and uapi, from which the module is built: core of a checkout,
/// or the files of package unspin-dkms.
pub fn module_source() -> PathBuf {
    let core = source_tree().join("core");
    if core.is_dir() {
        core
    } else {
        source_tree()
    }
}

/// The directory for downloads and builds: `out` of the checkout, or one of the user.
pub fn work_dir() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    match euid() {
        _ if !is_installed() => source_tree().join("out"),
        0 => PathBuf::from("/var/cache/unspin"),
        _ => cache.or_else(home).unwrap_or_else(|| PathBuf::from("out")).join("unspin"),
    }
}

/// Whether this program is from a package or a static build, not from a checkout.
pub fn is_installed() -> bool {
    cfg!(target_feature = "crt-static")
        || std::env::current_exe().is_ok_and(|program| program.starts_with("/usr/bin"))
}

/// The first two numbers of a kernel's release.
pub fn series(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The kernel release of installed headers; `None` if they are missing.
pub fn release_of_headers(headers: &Path) -> Option<String> {
    let text = fs::read_to_string(headers.join("include/generated/utsrelease.h")).ok()?;
    Some(text.split('"').nth(1).unwrap_or("no release").to_string())
}

/// The compiler's errors in a build's log, or the refusal of the module's Kbuild. The last lines of such a
/// log only show that it failed.
pub fn errors_in_log(log: &Path) -> Vec<String> {
    let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let is_error = |line: &&str| {
        line.contains("error: ") || line.starts_with("ERROR: ") || line.contains("*** unspin: ")
    };
    text.lines().filter(is_error).take(ERRORS_SHOWN).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_read() {
        assert_eq!(series("7.3.4+deb13-cloud-amd64"), Some((7, 3)));
        assert_eq!(series("10.0-rc1"), Some((10, 0)));
        assert_eq!((series("next"), series("")), (None, None));
    }
}
