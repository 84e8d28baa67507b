// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module builds, without a warning, for the kernels that other tests boot, which need not fetch and build
//! them then; and for Debian's kernels that no other test boots: those of any PC, and the same series in
//! another release, of which only headers are fetched. The guests' module builds for all of them.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use unspin_computers::{Flavour, KernelPackage, Lab, Series, BOCHS_TOOLS, QEMU_TOOLS};

/// What a build said of one file at least, with the warnings in it.
fn warnings(lab: &Lab, release: &str, log: &str, file: &str) -> Vec<String> {
    let log = lab.dir().join("kernels").join(release).join(log);
    let log = std::fs::read_to_string(&log).unwrap_or_else(|e| panic!("{log:?}: {e}"));
    assert!(log.contains(file), "{release}: nothing was built:\n{log}");
    let warnings = log.lines().filter(|line| line.to_lowercase().contains("warning"));
    warnings.map(|line| format!("{release}: {line}")).collect()
}

#[test]
fn what_boots_is_built() {
    let Some(lab) = common::lab(QEMU_TOOLS) else { return };
    // First those that most tests boot.
    let mut all = common::kernels(&Series::ALL);
    all.sort_by_key(|series| *series != Series::V6_12);
    let kernels = all.into_iter().filter_map(|series| common::kernel(&lab, series));
    let logs = |release: String| {
        ["build.log", "build-test.log"].map(|log| warnings(&lab, &release, log, "unspin.o"))
    };
    let wrong = kernels.flat_map(|kernel| logs(kernel.release)).flatten();
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn what_is_timed_boots_a_bochs_of_its_own() {
    common::lab(BOCHS_TOOLS);
}

#[test]
fn the_module_builds_for_the_kernels_hosts_run() {
    let Some(lab) = common::lab(QEMU_TOOLS) else { return };
    let mut wrong = Vec::new();
    for package in not_booted() {
        let built = common::going(|go| lab.build_module(package, go));
        let Some(release) = common::prepared(&package.name(), built) else { continue };
        wrong.extend(warnings(&lab, &release, "build.log", "unspin.o"));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Make builds the module against these headers, in a directory of its own. Whether it did, and its log.
fn made(headers: &Path, arguments: &[&str]) -> (bool, String) {
    let build = unspin_scratch::Scratch::new();
    let mut make = Command::new("make");
    make.arg("-C").arg(unspin_computers::source_tree().join("core/kmod"));
    make.arg(format!("KDIR={}", headers.display())).arg(format!("BUILD={}", build.display()));
    let out = make.args(arguments).output().unwrap();
    let said = [out.stdout, out.stderr].concat();
    (out.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// A line says what a kernel lacks, and no compiler's error does.
#[test]
fn what_the_module_is_not_for_is_named() {
    let Some(lab) = common::lab(QEMU_TOOLS) else { return };
    let Some(kernel) = common::kernel(&lab, Series::V6_12) else { return };
    // The macro's function takes another number of arguments.
    let other =
        "KCFLAGS=-Dcheck_trace_callback_type_sched_switch=check_trace_callback_type_sched_wakeup";
    let version =
        |numbers: &'static [&'static str]| (numbers, "the module needs Linux 6.1 or later");
    for (arguments, words) in [
        (&[other][..], "the tracepoint sched_switch of this kernel does not pass"),
        // Of RHEL 8, Debian 11, RHEL 9 and Ubuntu 22.04.
        version(&["VERSION=4", "PATCHLEVEL=18"]),
        version(&["VERSION=5", "PATCHLEVEL=10"]),
        version(&["VERSION=5", "PATCHLEVEL=14"]),
        version(&["VERSION=5", "PATCHLEVEL=15"]),
        version(&["VERSION=6", "PATCHLEVEL=0"]),
    ] {
        let (is_built, said) = made(&kernel.headers, arguments);
        assert!(!is_built && said.contains(words), "{arguments:?}: {said}");
        assert!(!said.contains("error:"), "{said}");
    }
}

/// Kernels that no package of Debian has, if their headers are here.
#[test]
fn the_module_builds_against_headers_that_are_named() {
    let named = std::env::var_os("UNSPIN_HEADERS").unwrap_or_default();
    let all: Vec<PathBuf> =
        std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
    if all.is_empty() {
        return common::say("SKIPPED: other kernels: UNSPIN_HEADERS=DIR:DIR names their headers");
    }
    for headers in all {
        // A source tree has no list of the kernel's symbols.
        let (is_built, said) = made(&headers, &["KBUILD_MODPOST_WARN=1"]);
        assert!(is_built, "{headers:?}: {said}");
        let warnings: Vec<&str> = said.lines().filter(|line| line.contains("warning:")).collect();
        assert!(warnings.is_empty(), "{headers:?}: {warnings:?}");
    }
}

#[test]
fn the_guests_module_builds_for_what_boots() {
    let booted = common::kernels(&Series::ALL).into_iter().map(KernelPackage::from);
    the_guests_module_builds_for(booted.collect());
}

#[test]
fn the_guests_module_builds_for_the_kernels_hosts_run() {
    the_guests_module_builds_for(not_booted());
}

fn the_guests_module_builds_for(packages: Vec<KernelPackage>) {
    let Some(lab) = common::lab(QEMU_TOOLS) else { return };
    let mut wrong = Vec::new();
    for package in packages {
        let built = common::going(|go| lab.guest_module(package, go));
        let Some((release, _)) = common::prepared(&package.name(), built) else { continue };
        wrong.extend(warnings(&lab, &release, "build-guest.log", "unspin-guest.o"));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn not_booted() -> Vec<KernelPackage> {
    let mut packages = Vec::new();
    for series in common::kernels(&Series::ALL) {
        for &debian in series.debians() {
            for flavour in Flavour::ALL {
                let package = KernelPackage { series, debian, flavour };
                if package != KernelPackage::from(series) {
                    packages.push(package);
                }
            }
        }
    }
    packages
}
