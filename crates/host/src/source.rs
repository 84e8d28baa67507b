// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the module's sources are, and where what is made of them is kept.

use std::path::{Path, PathBuf};

/// The module's sources: `UNSPIN_ROOT`, or the checkout this program was built from. An installed
/// program was built elsewhere, in a place that may be anybody's here: its sources are those of package
/// unspin-dkms.
pub fn source_tree() -> PathBuf {
    match std::env::var_os("UNSPIN_ROOT") {
        Some(root) => PathBuf::from(root),
        None if is_installed() => {
            Path::new("/usr/src").join(concat!("unspin-", env!("CARGO_PKG_VERSION")))
        }
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
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

/// Whether this program is one of a package.
pub fn is_installed() -> bool {
    std::env::current_exe().is_ok_and(|program| program.starts_with("/usr/bin"))
}
