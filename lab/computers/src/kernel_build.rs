// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels built from the distribution's sources. A directory has the sources in `source`, all output
//! of the build in `objects`, and the output of the tools in `kernel.log`.

use crate::apt::Apt;
use crate::error::{io, LabError, Result};
use crate::go::Go;
use crate::kernel;
use crate::packages;
use crate::series::Series;
use crate::tool;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// The package with the sources of a series.
fn source_package(series: Series) -> String {
    format!("linux-source-{}", series.name())
}

/// What is written last into a directory of sources, and the name of the file with it.
pub(crate) struct Stamp<'a> {
    pub file: &'a str,
    pub text: &'a str,
}

/// The directory in `lab` with the sources of a series. They are fetched unless it has the stamp;
/// `change` changes what was fetched.
pub(crate) fn sources(
    lab: &Path,
    series: Series,
    kind: &str,
    stamp: &Stamp,
    go: &mut Go,
    change: impl FnOnce(&Path, &AtomicBool) -> Result<()>,
) -> Result<PathBuf> {
    let package = source_package(series);
    let apt = match kernel::apt_of(lab, series.debians()[0], go) {
        Err(LabError::Interrupted) => return Err(LabError::Interrupted),
        // Without its lists, only what was stored before can be had.
        other => other.unwrap_or_else(|_| Apt::host()),
    };
    let name = match apt.version(&package) {
        Some(version) => format!("{kind}-{version}"),
        // Without package lists, use the newest sources that were stored before.
        None => kernel::unpacked(lab, stamp.file, stamp.text).ok_or_else(|| {
            LabError::NoKernelPackage { series: series.name().into(), looked: package.clone() }
        })?,
    };
    let dir = lab.join("kernels").join(name);
    let done = dir.join(stamp.file);
    if fs::read_to_string(&done).ok().as_deref() != Some(stamp.text) {
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).map_err(io(&dir))?;
        go.say(&format!("downloading the sources of kernel {}", series.name()));
        fetch(&apt, &dir, &package, go.stop)?;
        change(&dir, go.stop)?;
        fs::write(&done, stamp.text).map_err(io(&done))?;
    }
    Ok(dir)
}

fn fetch(apt: &Apt, dir: &Path, package: &str, stop: &AtomicBool) -> Result<()> {
    let log = dir.join("fetch.log");
    let tree = dir.join("tree");
    apt.download(dir, &[package], &log, stop)?;
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

fn make(dir: &Path) -> Command {
    let mut make = Command::new("make");
    make.arg("-C").arg(dir.join("source")).arg(format!("O={}", dir.join("objects").display()));
    make
}

/// Options of a kernel, and the file that has them.
pub(crate) struct Options<'a> {
    pub text: &'a str,
    pub file: &'static str,
}

/// Turns all options off except these, and checks that these are set.
pub(crate) fn configure(dir: &Path, options: &Options, stop: &AtomicBool) -> Result<()> {
    let wanted = dir.join("wanted.config");
    fs::write(&wanted, options.text).map_err(io(&wanted))?;
    let log = dir.join("kernel.log");
    let _ = fs::remove_file(&log);
    let mut allnoconfig = make(dir);
    allnoconfig.arg("allnoconfig").env("KCONFIG_ALLCONFIG", &wanted);
    tool::run("configuring the kernel", &mut allnoconfig, &log, stop)?;
    let config = dir.join("objects/.config");
    let granted = fs::read_to_string(&config).map_err(io(&config))?;
    match refused(options.text, &granted) {
        None => Ok(()),
        Some(line) => {
            let (option, file) = (line.into(), options.file);
            Err(LabError::OptionRefused { option, config, file })
        }
    }
}

/// The first requested option that a configuration lacks.
fn refused<'a>(wanted: &'a str, granted: &str) -> Option<&'a str> {
    let is_option = |line: &&str| line.starts_with("CONFIG_");
    wanted.lines().filter(is_option).find(|line| !granted.lines().any(|other| other == *line))
}

/// Builds `targets`. Calls `look` repeatedly with the output so far.
pub(crate) fn build(
    dir: &Path,
    targets: &[&str],
    stop: &AtomicBool,
    look: &mut dyn FnMut(&str),
) -> Result<()> {
    let log = dir.join("kernel.log");
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all = make(dir);
    all.args(["-j", &jobs.to_string()]).args(targets);
    tool::run_watched("building the kernel", &mut all, &log, stop, &mut || {
        look(&fs::read_to_string(&log).unwrap_or_default());
    })
}

/// A kernel to build: of the series' current sources, unchanged, with these options.
pub(crate) struct Recipe<'a> {
    pub series: Series,
    /// A word in the names of its directory and its stamp.
    pub kind: &'static str,
    pub options: Options<'a>,
    pub targets: &'a [&'static str],
}

/// The directory in `lab` with the kernel that was built by a recipe. Existing results are reused; `finish` is
/// what is done after a build.
pub(crate) fn prepare(
    recipe: &Recipe,
    lab: &Path,
    go: &mut Go,
    finish: impl FnOnce(&Path, &AtomicBool) -> Result<()>,
) -> Result<PathBuf> {
    let Recipe { series, kind, ref options, targets } = *recipe;
    let kept = format!("{kind}-{}", series.name());
    let stamp = Stamp { file: "unpacked", text: &kept };
    let dir = sources(lab, series, kind, &stamp, go, |_, _| Ok(()))?;
    let built = dir.join("built");
    if fs::read_to_string(&built).ok().as_deref() != Some(options.text) {
        configure(&dir, options, go.stop)?;
        let log = dir.join("kernel.log");
        go.say(&format!("building kernel {kept}, its output is in {}", log.display()));
        build(&dir, targets, go.stop, &mut |_| {})?;
        finish(&dir, go.stop)?;
        fs::write(&built, options.text).map_err(io(&built))?;
    }
    Ok(dir)
}

/// The release (`uname -r`) of the kernel that was built in a directory.
pub(crate) fn release(dir: &Path) -> Result<String> {
    let named = dir.join("objects/include/config/kernel.release");
    let text = fs::read_to_string(&named).map_err(io(&named))?;
    Ok(text.trim().to_string())
}

/// The file that boots, of the target bzImage.
pub(crate) fn vmlinuz(dir: &Path) -> PathBuf {
    dir.join("objects/arch/x86/boot/bzImage")
}

/// Copies a built module, named by its place below `objects`, without its debugging data.
pub(crate) fn strip(dir: &Path, built: &str, target: &Path, stop: &AtomicBool) -> Result<()> {
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg("-o").arg(target).arg(dir.join("objects").join(built));
    tool::run(&format!("stripping {built}"), &mut strip, &dir.join("kernel.log"), stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_is_not_granted_is_found() {
        let wanted = "# x\nCONFIG_KASAN=y\nCONFIG_KVM=m\n";
        let granted = format!("CONFIG_FIRST=y\n{wanted}");
        assert_eq!(refused(wanted, &granted), None);
        let without = granted.replace("CONFIG_KASAN=y", "# CONFIG_KASAN is not set");
        assert_eq!(refused(wanted, &without), Some("CONFIG_KASAN=y"));
        let other = granted.replace("CONFIG_KVM=m", "CONFIG_KVM=y");
        assert_eq!(refused(wanted, &other), Some("CONFIG_KVM=m"));
    }
}
