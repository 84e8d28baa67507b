// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel for Linux guests with the locks of core/locks: the distribution's sources with a patch
//! and with files of lab/guest/kernel. It is built only by request, and found by the hash of what is
//! this project's in it. An interrupted build is continued.

use crate::error::{io, LabError, Result};
use crate::go::Go;
use crate::hash::{contents, sha256};
use crate::kernel_build::{self, Options, Stamp};
use crate::module_build::copy_changed;
use crate::recipe::Progress;
use crate::series::Series;
use crate::tool;
use crate::unpacked::GUESTS;
use crate::vmlinux;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use unspin_scenario::plan::{LOCKS_KERNEL, LOCKS_SERIES};

const SOURCES: &str = "lab/guest/kernel";
const PATCH: &str = "linux-6.12.patch";
const CONFIG: &str = "guest.config";
/// Files of SOURCES, and the kernel's directories for them.
const FILES: [(&str, &str); 3] = [
    ("unspin_spinlock.c", "arch/x86/kernel"),
    ("unspin_env.h", "arch/x86/kernel"),
    ("unspin_spinlock.h", "arch/x86/include/asm"),
];

const LOCKS: &str = "core/locks";
/// The headers that unspin_spinlock.c includes, and their directory in the kernel.
pub(crate) const LOCK_HEADERS: [&str; 7] = [
    "budget.h",
    "env.h",
    "oticket.h",
    "preemptable.h",
    "pv_preemptable.h",
    "pv_ticket.h",
    "ticket.h",
];
const LOCKS_IN_KERNEL: &str = "arch/x86/kernel/unspin";

const TARGETS: [&str; 2] = ["vmlinux", "modules"];
/// locktorture and the module that it needs, in the order of loading.
const TORTURE: [&str; 2] = ["kernel/torture.ko", "kernel/locking/locktorture.ko"];

/// Compiled files of a build, for its progress, which is reported at this interval.
static PROGRESS: Progress = Progress::Lines(&["  CC ", "  AS "], 900);
const SAID_EVERY_PERCENT: usize = 10;

/// What the finished kernel's directory has besides the modules: the kernel, and the hash of its inputs.
const KERNEL: &str = "vmlinux";
const INPUTS: &str = "inputs";
/// The patch that was applied to the sources beside it.
const PATCHED: &str = "patched";

/// All parts of the kernel from this project, of the source tree `root`.
pub(crate) fn sources(root: &Path) -> Result<Vec<Vec<u8>>> {
    let mut parts = contents(&root.join(SOURCES))?;
    for name in LOCK_HEADERS {
        let path = root.join(LOCKS).join(name);
        parts.push(name.into());
        parts.push(fs::read(&path).map_err(io(&path))?);
    }
    Ok(parts)
}

fn inputs(root: &Path) -> Result<String> {
    Ok(sha256(&sources(root)?))
}

fn dir_of(lab: &Path) -> PathBuf {
    lab.join(GUESTS).join("kernels").join(LOCKS_KERNEL)
}

/// The kernel, if it was built from the present sources.
pub(crate) fn find(root: &Path, lab: &Path) -> Result<PathBuf> {
    let dir = dir_of(lab);
    let kept = fs::read_to_string(dir.join(INPUTS)).unwrap_or_default();
    match kept == inputs(root)? {
        true => Ok(dir.join(KERNEL)),
        false => Err(LabError::NoLocksKernel),
    }
}

/// The same; builds it if it does not exist.
pub(crate) fn prepare(root: &Path, lab: &Path, go: &mut Go) -> Result<PathBuf> {
    if let Ok(found) = find(root, lab) {
        return Ok(found);
    }
    let inputs = inputs(root)?;
    let dir = patched_sources(root, lab, go)?;
    copy_sources(root, &dir.join("source"))?;
    let config = root.join(SOURCES).join(CONFIG);
    let text = fs::read_to_string(&config).map_err(io(&config))?;
    kernel_build::configure(
        &dir,
        &Options { text: &text, file: "lab/guest/kernel/guest.config" },
        go.stop,
    )?;
    go.say(&format!(
        "building the guests' kernel {LOCKS_KERNEL}: 10 to 40 minutes on two CPUs, once ({})",
        dir.join("kernel.log").display()
    ));
    build(&dir, go)?;
    keep(&dir, &dir_of(lab), &inputs, go.stop)
}

/// Fetches the sources and applies the patch, unless that was done before. Returns their directory.
fn patched_sources(root: &Path, lab: &Path, go: &mut Go) -> Result<PathBuf> {
    let patch = root.join(SOURCES).join(PATCH);
    let text = fs::read_to_string(&patch).map_err(io(&patch))?;
    let stamp = Stamp { file: PATCHED, text: &text };
    let series = Series::parse(LOCKS_SERIES).expect("a series of the lab");
    kernel_build::sources(lab, series, "guest", &stamp, go, |dir, stop| {
        let mut apply = Command::new("patch");
        apply.args(["-p1", "--batch", "--forward", "--fuzz=0", "-i"]).arg(&patch);
        let apply = apply.current_dir(dir.join("source"));
        tool::run(&format!("applying {PATCH}"), apply, &dir.join("fetch.log"), stop)
    })
}

/// Copies this project's files into the kernel's sources. Equal ones keep their times, so that only
/// what changed is built again.
fn copy_sources(root: &Path, source: &Path) -> Result<()> {
    let own = FILES.map(|(name, to)| (root.join(SOURCES).join(name), source.join(to).join(name)));
    let locks = source.join(LOCKS_IN_KERNEL);
    let headers = LOCK_HEADERS.map(|name| (root.join(LOCKS).join(name), locks.join(name)));
    own.iter().chain(&headers).try_for_each(|(from, to)| copy_changed(from, to))
}

fn build(dir: &Path, go: &mut Go) -> Result<()> {
    let what = format!("building kernel {LOCKS_KERNEL}");
    let mut report = PROGRESS.reported(&what, SAID_EVERY_PERCENT, go.say);
    kernel_build::build(dir, &TARGETS, go.stop, &mut report)
}

/// Keeps the kernel's loaded parts and the modules. The hash is written last.
fn keep(dir: &Path, kept: &Path, inputs: &str, stop: &AtomicBool) -> Result<PathBuf> {
    let _ = fs::remove_dir_all(kept);
    fs::create_dir_all(kept).map_err(io(kept))?;
    let vmlinux = dir.join("objects/vmlinux");
    let kernel = fs::read(&vmlinux).map_err(io(&vmlinux))?;
    let kernel = vmlinux::loaded_parts(&vmlinux, kernel, LOCKS_KERNEL)?;
    let target = kept.join(KERNEL);
    fs::write(&target, kernel).map_err(io(&target))?;
    for built in TORTURE {
        let name = Path::new(built).file_name().expect("a file");
        kernel_build::strip(dir, built, &kept.join(name), stop)?;
    }
    let stamp = kept.join(INPUTS);
    fs::write(&stamp, inputs).map_err(io(&stamp))?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scratch::Scratch;

    #[test]
    fn a_kernel_of_other_sources_is_not_taken() {
        let dir = Scratch::new();
        let (root, lab) = (dir.dir("root"), dir.dir("lab"));
        for name in LOCK_HEADERS {
            dir.write(format!("root/{LOCKS}/{name}"), "before");
        }
        for name in [PATCH, CONFIG, "unspin_spinlock.c"] {
            dir.write(format!("root/{SOURCES}/{name}"), "before");
        }
        let error = find(&root, &lab).unwrap_err();
        assert!(error.to_string().contains("make guest-kernel"), "{error}");
        let kept = dir_of(&lab);
        fs::create_dir_all(&kept).unwrap();
        fs::write(kept.join(INPUTS), inputs(&root).unwrap()).unwrap();
        assert_eq!(find(&root, &lab).unwrap(), kept.join(KERNEL));
        for changed in [format!("{LOCKS}/ticket.h"), format!("{SOURCES}/{CONFIG}")] {
            dir.write(format!("root/{changed}"), "after");
            assert!(matches!(find(&root, &lab), Err(LabError::NoLocksKernel)), "{changed}");
            dir.write(format!("root/{changed}"), "before");
        }
        find(&root, &lab).unwrap();
    }

    #[test]
    fn all_headers_that_are_included_are_copied() {
        let root = unspin_host::source::source_tree();
        let dir = Scratch::new();
        copy_sources(&root, &dir).unwrap();
        let included = |text: &str| -> Vec<String> {
            let name =
                |line: &str| Some(line.strip_prefix("#include \"")?.trim_end_matches('"').into());
            text.lines().filter_map(name).collect()
        };
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        let main = included(&read(&dir.join("arch/x86/kernel/unspin_spinlock.c")));
        assert!(main.len() >= 4, "{main:?}");
        for name in main {
            assert!(dir.join("arch/x86/kernel").join(&name).is_file(), "{name}");
        }
        // Programs include env_linux.h, and stats.h if they count waits.
        let not_here = ["env_linux.h", "stats.h"];
        for header in LOCK_HEADERS {
            let names = included(&read(&dir.join(LOCKS_IN_KERNEL).join(header)));
            for name in names.iter().filter(|name| !not_here.contains(&name.as_str())) {
                assert!(LOCK_HEADERS.contains(&name.as_str()), "{header} includes {name}");
            }
        }
    }

    #[test]
    fn what_is_compiled_is_progress() {
        assert_eq!(PROGRESS.percent_done("  HOSTCC x\n  CALL y\n"), 0);
        assert_eq!(PROGRESS.percent_done(&"  CC      a.o\n  AS      b.o\n".repeat(225)), 50);
    }
}
