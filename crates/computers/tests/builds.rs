// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module builds, without a warning, for Debian's kernels that no other test boots: those of
//! any PC, and the same series in another release; the guests' module for all of them. Only their
//! headers are fetched.

mod common;

use std::process::Command;
use std::sync::atomic::AtomicBool;
use unspin_computers::{Flavour, KernelPackage, Series, QEMU_TOOLS};

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

/// Kernels before 5.18 pass other arguments to probes of the scheduler: a line says so, and no compiler's.
#[test]
fn a_kernel_with_another_tracepoint_is_named() {
    if !common::has_tools(QEMU_TOOLS) {
        return;
    }
    let lab = common::lab();
    let Some(kernel) = common::kernel(&lab, Series::V6_12) else { return };
    let build = std::env::temp_dir().join(format!("unspin-other-{}", std::process::id()));
    let mut make = Command::new("make");
    make.arg("-C").arg(unspin_computers::source_tree().join("kmod"));
    make.arg(format!("KDIR={}", kernel.headers.display()));
    make.arg(format!("BUILD={}", build.display()));
    // The macro's function takes another number of arguments.
    make.arg(
        "KCFLAGS=-Dcheck_trace_callback_type_sched_switch=check_trace_callback_type_sched_wakeup",
    );
    let out = make.output().unwrap();
    let _ = std::fs::remove_dir_all(&build);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success());
    assert!(said.contains("the tracepoint sched_switch of this kernel does not pass"), "{said}");
    assert!(!said.contains("error:"), "{said}");
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
