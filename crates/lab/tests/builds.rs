// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module builds, without a warning, for Debian's kernels that no other test boots: those of
//! any PC, and the same series in another release; the guests' module for all of them. Only their
//! headers are fetched.

mod common;

use std::sync::atomic::AtomicBool;
use unspin_lab::{Flavour, KernelPackage, Series, QEMU_TOOLS};

#[test]
fn the_module_builds_for_the_kernels_hosts_run() {
    if !common::has_tools(QEMU_TOOLS) {
        return;
    }
    let lab = common::lab();
    let go = AtomicBool::new(false);
    let mut wrong = Vec::new();
    for package in not_booted() {
        let built = lab.build_module(package, &go, &mut |text| common::say(text));
        let Some(release) = common::prepared(&package.name(), built) else { continue };
        let log = lab.dir().join("kernels").join(&release).join("build.log");
        let log = std::fs::read_to_string(&log).unwrap_or_else(|e| panic!("{log:?}: {e}"));
        assert!(log.contains("unspin.o"), "{release}: nothing was built:\n{log}");
        let warnings = log.lines().filter(|line| line.to_lowercase().contains("warning"));
        wrong.extend(warnings.map(|line| format!("{release}: {line}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_guests_module_builds_for_all_kernels() {
    if !common::has_tools(QEMU_TOOLS) {
        return;
    }
    let lab = common::lab();
    let go = AtomicBool::new(false);
    let mut wrong = Vec::new();
    let booted = common::kernels(&Series::ALL).into_iter().map(KernelPackage::from);
    for package in booted.chain(not_booted()) {
        // Whoever built it before, and again without anything to do: the log tells of the compiler.
        let _ = lab.guest_module(package, &go, &mut |text| common::say(text));
        let built = lab.guest_module(package, &go, &mut |text| common::say(text));
        let Some((release, module)) = common::prepared(&package.name(), built) else { continue };
        let log = module.with_file_name("build-guest.log");
        let log = std::fs::read_to_string(&log).unwrap_or_else(|e| panic!("{log:?}: {e}"));
        assert!(log.contains("unspin-guest.o"), "{release}: nothing was built:\n{log}");
        let warnings = log.lines().filter(|line| line.to_lowercase().contains("warning"));
        wrong.extend(warnings.map(|line| format!("{release}: {line}")));
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
