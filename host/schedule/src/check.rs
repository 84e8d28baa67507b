// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether this kernel can have the scheduler.

use crate::{ext, Error, CPUS_MAX};
use std::path::Path;
use unspin_host::source::series;
use unspin_host::{cpus, place};
use unspin_text::read_kernel_text;

/// The first version that lets no task of SCHED_EXT starve below others.
pub const KERNEL_MIN: (u32, u32) = (7, 0);

/// The version that it was tested on. That others from [`KERNEL_MIN`] on have what it needs is known by reading only.
pub const KERNEL_TESTED: (u32, u32) = (7, 3);

/// The error says why this kernel cannot have it now. Only loading shows whether the kernel's verifier accepts it.
///
/// # Errors
/// The kernel is too old or locked down, or lacks sched_ext or type information, or another scheduler is loaded, or
/// the host may have too many CPUs.
pub fn check() -> Result<(), Error> {
    check_at(&place::proc(), &place::sys())
}

/// Whether this kernel is of [`KERNEL_TESTED`].
pub fn is_tested() -> bool {
    is_tested_at(&place::proc())
}

fn is_tested_at(proc: &Path) -> bool {
    series(&ext::release(proc)) == Some(KERNEL_TESTED)
}

fn check_at(proc: &Path, sys: &Path) -> Result<(), Error> {
    let release = ext::release(proc);
    match series(&release) {
        None => return Err(Error::NoVersion { release }),
        Some(is) if is < KERNEL_MIN => return Err(Error::TooOld { release }),
        Some(_) => {}
    }
    ext::check(proc, sys)?;
    let possible = read_kernel_text(sys.join("devices/system/cpu/possible")).unwrap_or_default();
    match cpus::parse(&possible).and_then(|cpus| cpus.last().copied()) {
        Some(cpu) if cpu as usize >= CPUS_MAX => Err(Error::ManyCpus { cpu }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scratch::Scratch;

    #[test]
    fn what_is_missing_is_named() {
        let root = Scratch::new();
        let said = || match check_at(&root.join("proc"), &root.join("sys")) {
            Ok(()) => String::new(),
            Err(e) => {
                assert!(e.is_of_computer(), "{e}");
                e.to_string()
            }
        };
        for (path, text, words) in [
            ("proc/sys/kernel/x", "", "is not a version: \"\""),
            ("proc/sys/kernel/osrelease", "next\n", "is not a version: \"next\""),
            ("proc/sys/kernel/osrelease", "6.12.9-amd64\n", "6.12.9-amd64 is too old"),
            ("proc/sys/kernel/osrelease", "7.0.1\n", "has no sched_ext"),
            ("sys/kernel/sched_ext/state", "enabled\n", "no type information"),
            ("sys/kernel/btf/vmlinux", "", "is loaded: of unknown name (enabled)"),
            ("sys/kernel/sched_ext/root/ops", "rusty\n", "loaded: rusty (enabled); stop it"),
            ("sys/kernel/sched_ext/state", "disabled\n", ""),
            ("sys/kernel/security/lockdown", "none integrity [confidentiality]\n", "locked down"),
            ("sys/kernel/security/lockdown", "none [integrity] confidentiality\n", ""),
            ("sys/devices/system/cpu/possible", "0-512\n", "may have CPU 512"),
            ("sys/devices/system/cpu/possible", "0-511\n", ""),
        ] {
            root.write(path, text);
            let is = said();
            assert!(is.contains(words) && words.is_empty() == is.is_empty(), "{path}: {is}");
        }
    }

    #[test]
    fn one_version_is_tested() {
        let root = Scratch::new();
        assert!(!is_tested_at(&root), "no release");
        for (release, is) in [("7.3.4-amd64", true), ("7.30.1", false), ("7.0.1", false)] {
            root.write("sys/kernel/osrelease", release);
            assert_eq!(is_tested_at(&root), is, "{release}");
        }
    }
}
