// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that check themselves (lock order, memory, leaks, illegal sleeping), for tests of the
//! module: the series' current sources from the distribution's package, with the options of
//! debug.config. Nothing is installed. An interrupted build is continued.

use crate::error::{io, LabError, Result};
use crate::go::Go;
use crate::kernel::{self, Kernel};
use crate::kernel_build::{self, Options};
use crate::module_build::{build_module, Against, HOSTS, HOSTS_FOR_TESTS};
use crate::packages;
use crate::series::Series;
use crate::tool;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

const OPTIONS: Options =
    Options { text: include_str!("debug.config"), file: "lab/computers/src/debug.config" };

/// Fetches the series' sources, and builds a kernel with all checks (some 15 minutes on two CPUs) and the
/// module for it. Existing results are reused.
pub fn prepare(root: &Path, lab: &Path, series: Series, go: &mut Go) -> Result<Kernel> {
    let package = kernel_build::source_package(series.name());
    let kept = format!("debug-{}", series.name());
    let name = match kernel_build::current_version(&package) {
        Some(version) => format!("debug-{version}"),
        // Without package lists, use a package that was unpacked before.
        None => kernel::unpacked(lab, "unpacked", &kept).ok_or_else(|| {
            LabError::NoKernelPackage { series: series.name().into(), looked: package.clone() }
        })?,
    };
    let dir = lab.join("kernels").join(&name);
    let done = dir.join("unpacked");
    if !done.exists() {
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).map_err(io(&dir))?;
        go.say(&format!("downloading the sources of kernel {}", series.name()));
        kernel_build::fetch(&dir, &package, go.stop)?;
        fs::write(&done, &kept).map_err(io(&done))?;
    }
    let objects = dir.join("objects");
    let built = dir.join("built");
    if fs::read_to_string(&built).ok().as_deref() != Some(OPTIONS.text) {
        kernel_build::configure(&dir, &OPTIONS, go.stop)?;
        go.say(&format!(
            "building kernel {name}, its output is in {}",
            dir.join("kernel.log").display()
        ));
        build(&dir, go.stop)?;
        fs::write(&built, OPTIONS.text).map_err(io(&built))?;
    }
    let named = objects.join("include/config/kernel.release");
    let release = fs::read_to_string(&named).map_err(io(&named))?.trim().to_string();
    kernel::check_config(&objects.join(".config"), &release)?;
    go.say(&format!("building the module for {release}"));
    let against = Against { release: &release, headers: &objects, toolchain: None };
    let module = build_module(&HOSTS, root, &dir, &against, go.stop)?;
    let test_module = build_module(&HOSTS_FOR_TESTS, root, &dir, &against, go.stop)?;
    let vmlinuz = objects.join("arch/x86/boot/bzImage");
    let modules = packages::modules_in(&dir);
    let (name, headers) = (kept, objects);
    Ok(Kernel { series, name, release, vmlinuz, modules, headers, module, test_module })
}

fn build(dir: &Path, stop: &AtomicBool) -> Result<()> {
    kernel_build::build(dir, &["bzImage", "modules"], stop, &mut |_| {})?;
    // The debugging data stays with the objects; the type data, which the module reads, stays in
    // the module.
    let log = dir.join("kernel.log");
    for (sub, name) in packages::MODULES {
        let built = dir.join("objects").join(sub).join(format!("{name}.ko"));
        let mut strip = Command::new("strip");
        strip.arg("--strip-debug").arg("-o").arg(dir.join(format!("{name}.ko"))).arg(built);
        tool::run("stripping KVM's modules", &mut strip, &log, stop)?;
    }
    Ok(())
}
