// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that check themselves (lock order, memory, leaks, illegal sleeping), for tests of the
//! module: the series' current sources from the distribution's package, with the options of
//! debug.config. Nothing is installed. An interrupted build is continued.

use crate::apt::Apt;
use crate::error::{io, LabError, Result};
use crate::go::Go;
use crate::kernel::{self, Kernel};
use crate::module_build::{build_module, Against, HOSTS, HOSTS_FOR_TESTS};
use crate::packages;
use crate::series::Series;
use crate::tool;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

const CONFIG: &str = include_str!("debug.config");

/// Fetches the series' sources, and builds a kernel with all checks (some 15 minutes on two CPUs) and the
/// module for it. Existing results are reused.
pub fn prepare(root: &Path, lab: &Path, series: Series, go: &mut Go) -> Result<Kernel> {
    let package = format!("linux-source-{}", series.name());
    let kept = format!("debug-{}", series.name());
    let name = match current_version(&package) {
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
        fetch(&dir, &package, go.stop)?;
        fs::write(&done, &kept).map_err(io(&done))?;
    }
    let objects = dir.join("objects");
    let built = dir.join("built");
    if fs::read_to_string(&built).ok().as_deref() != Some(CONFIG) {
        configure(&dir, go.stop)?;
        go.say(&format!(
            "building kernel {name}, its output is in {}",
            dir.join("kernel.log").display()
        ));
        build(&dir, go.stop)?;
        fs::write(&built, CONFIG).map_err(io(&built))?;
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

/// The version of a package that would be downloaded now.
fn current_version(package: &str) -> Option<String> {
    let mut show = Command::new("apt-cache");
    let text = tool::output(show.args(["show", "--no-all-versions", package]))?;
    text.lines().find_map(|line| line.strip_prefix("Version: ")).map(str::to_string)
}

fn fetch(dir: &Path, package: &str, stop: &AtomicBool) -> Result<()> {
    let log = dir.join("fetch.log");
    let tree = dir.join("tree");
    Apt::host().download(dir, package, &log, stop)?;
    packages::unpack(dir, &tree, &log, stop)?;
    let source = dir.join("source");
    fs::create_dir_all(&source).map_err(io(&source))?;
    let mut unpack = Command::new("tar");
    unpack
        .arg("-xf")
        .arg(tree.join("usr/src").join(format!("{package}.tar.xz")))
        .arg("--strip-components=1")
        .arg("-C")
        .arg(&source);
    tool::run("unpacking the kernel's sources", &mut unpack, &log, stop)?;
    fs::remove_dir_all(&tree).map_err(io(&tree))
}

/// `make` in the sources, with all output below `objects`.
fn make(dir: &Path) -> Command {
    let mut make = Command::new("make");
    make.arg("-C").arg(dir.join("source")).arg(format!("O={}", dir.join("objects").display()));
    make
}

/// Turns all options off except those in debug.config, and checks that these are set.
fn configure(dir: &Path, stop: &AtomicBool) -> Result<()> {
    let wanted = dir.join("debug.config");
    fs::write(&wanted, CONFIG).map_err(io(&wanted))?;
    let log = dir.join("kernel.log");
    let _ = fs::remove_file(&log);
    let mut allnoconfig = make(dir);
    allnoconfig.arg("allnoconfig").env("KCONFIG_ALLCONFIG", &wanted);
    tool::run("configuring the kernel", &mut allnoconfig, &log, stop)?;
    let path = dir.join("objects/.config");
    let granted = fs::read_to_string(&path).map_err(io(&path))?;
    match refused(CONFIG, &granted) {
        None => Ok(()),
        Some(line) => Err(LabError::OptionRefused { option: line.into(), config: path }),
    }
}

/// The first requested option that a configuration lacks.
fn refused<'a>(wanted: &'a str, granted: &str) -> Option<&'a str> {
    let is_option = |line: &&str| line.starts_with("CONFIG_");
    wanted.lines().filter(is_option).find(|line| !granted.lines().any(|other| other == *line))
}

fn build(dir: &Path, stop: &AtomicBool) -> Result<()> {
    let log = dir.join("kernel.log");
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all = make(dir);
    all.args(["-j", &jobs.to_string(), "bzImage", "modules"]);
    tool::run("building the kernel", &mut all, &log, stop)?;
    // The debugging data stays with the objects; the type data, which the module reads, stays in
    // the module.
    for (sub, name) in packages::MODULES {
        let built = dir.join("objects").join(sub).join(format!("{name}.ko"));
        let mut strip = Command::new("strip");
        strip.arg("--strip-debug").arg("-o").arg(dir.join(format!("{name}.ko"))).arg(built);
        tool::run("stripping KVM's modules", &mut strip, &log, stop)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_is_not_granted_is_found() {
        let granted = format!("CONFIG_FIRST=y\n{CONFIG}");
        assert_eq!(refused(CONFIG, &granted), None);
        let without = granted.replace("CONFIG_KASAN=y", "# CONFIG_KASAN is not set");
        assert_eq!(refused(CONFIG, &without), Some("CONFIG_KASAN=y"));
        let other = granted.replace("CONFIG_KVM=m", "CONFIG_KVM=y");
        assert_eq!(refused(CONFIG, &other), Some("CONFIG_KVM=m"));
    }
}
