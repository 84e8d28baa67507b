// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stock kernels for the emulated computers, unpacked from Debian's packages, with the module built
//! for them. Nothing is installed on this computer.

use crate::apt::{Apt, Lists};
use crate::build_root::BuildRoot;
use crate::error::{io, LabError, Result};
use crate::go::Go;
use crate::module_build::{build_module, Against, Module, ModuleBuild, HOSTS, HOSTS_FOR_TESTS};
use crate::packages;
use crate::series::{Debian, KernelPackage, Series};
use std::fs;
use std::path::{Path, PathBuf};

/// The lab's directory for Debian 13's package lists and compiler.
pub(crate) const TRIXIE: &str = "debian13";

/// A kernel ready to boot, with the module built for it.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub series: Series,
    /// The series' name, followed by what distinguishes this kernel from the series' own.
    pub name: String,
    /// The release that `uname -r` prints.
    pub release: String,
    pub vmlinuz: PathBuf,
    /// Uncompressed modules: irqbypass, kvm, kvm-intel, kvm-amd and their dependencies.
    pub modules: Vec<PathBuf>,
    pub headers: PathBuf,
    /// `unspin.ko` as users install it.
    pub module: PathBuf,
    /// `unspin.ko` with the parameters that tests use.
    pub test_module: PathBuf,
}

impl Kernel {
    pub(crate) fn module_of(&self, build: ModuleBuild) -> &Path {
        match build {
            ModuleBuild::Production => &self.module,
            ModuleBuild::ForTests => &self.test_module,
        }
    }
}

/// Fetches and unpacks the current kernel of a package, and builds the module for it. Existing
/// results are reused. If it is stopped, the next call continues there.
pub fn prepare(root: &Path, lab: &Path, package: KernelPackage, go: &mut Go) -> Result<Kernel> {
    let found = find(lab, package, "unpacked", go)?;
    let module = build(&HOSTS, root, lab, package, &found, go)?;
    let test_module = build(&HOSTS_FOR_TESTS, root, lab, package, &found, go)?;
    let Found { apt, release, dir } = found;
    let done = dir.join("unpacked");
    if !done.exists() {
        let apt = apt.ok_or_else(|| no_lists(format!("kernel {release}")))?;
        go.say(&format!("downloading kernel {release}"));
        packages::fetch_kernel(&apt, &dir, &release, go.stop)?;
        fs::write(&done, package.name()).map_err(io(&done))?;
    }
    let tree = dir.join("tree");
    let headers = packages::headers_of(&tree, &release);
    let vmlinuz = packages::vmlinuz_of(&tree, &release);
    let modules = packages::modules_in(&dir);
    let (series, name) = (package.series, package.name());
    Ok(Kernel { series, name, release, vmlinuz, modules, headers, module, test_module })
}

/// Builds a module for a kernel of which only the headers are fetched. Returns the kernel's
/// release, too.
pub(crate) fn prepare_module(
    of: &Module,
    root: &Path,
    lab: &Path,
    package: KernelPackage,
    go: &mut Go,
) -> Result<(String, PathBuf)> {
    let found = find(lab, package, "headers", go)?;
    let module = build(of, root, lab, package, &found, go)?;
    Ok((found.release, module))
}

/// A package's current kernel, and its directory in the lab.
struct Found {
    /// `None` without package lists.
    apt: Option<Apt>,
    release: String,
    dir: PathBuf,
}

/// Finds a package's current kernel. Without package lists, it is the newest unpacked kernel that
/// has `stamp`.
fn find(lab: &Path, package: KernelPackage, stamp: &str, go: &mut Go) -> Result<Found> {
    let (release, apt) = match current(lab, package, go) {
        Err(LabError::Interrupted) => return Err(LabError::Interrupted),
        Err(error) => (unpacked(lab, stamp, &package.name()).ok_or(error)?, None),
        Ok((release, apt)) => (release, Some(apt)),
    };
    let dir = lab.join("kernels").join(&release);
    fs::create_dir_all(&dir).map_err(io(&dir))?;
    // Debian 13's compiler finds the directory at exactly this path.
    let dir = fs::canonicalize(&dir).map_err(io(&dir))?;
    Ok(Found { apt, release, dir })
}

/// The release of a package's current kernel, and apt with the lists that name it.
pub(crate) fn current(lab: &Path, package: KernelPackage, go: &mut Go) -> Result<(String, Apt)> {
    let apt = apt_of(lab, package.debian, go)?;
    Ok((packages::resolve(&apt, package)?, apt))
}

/// apt with the lists of a release of Debian.
pub(crate) fn apt_of(lab: &Path, debian: Debian, go: &mut Go) -> Result<Apt> {
    match debian {
        Debian::Bookworm => Ok(Apt::host()),
        Debian::Trixie => Apt::trixie(Lists::Packages, &lab.join(TRIXIE).join("apt"), go),
    }
}

fn no_lists(package: String) -> LabError {
    LabError::Download { package, detail: "there are no package lists".into() }
}

/// Fetches the headers if they are missing, and builds a module against them.
fn build(
    of: &Module,
    root: &Path,
    lab: &Path,
    package: KernelPackage,
    found: &Found,
    go: &mut Go,
) -> Result<PathBuf> {
    let Found { apt, release, dir } = found;
    let (done, needs) = (dir.join("headers"), dir.join("needs"));
    if !done.exists() {
        let apt = apt.as_ref().ok_or_else(|| no_lists(format!("the headers of {release}")))?;
        fs::remove_dir_all(dir).and_then(|()| fs::create_dir(dir)).map_err(io(dir))?;
        go.say(&format!("downloading the headers of {release}"));
        let names = packages::fetch_headers(apt, package, dir, release, go.stop)?;
        fs::write(&needs, names.join("\n")).map_err(io(&needs))?;
        fs::write(&done, package.name()).map_err(io(&done))?;
    }
    let headers = packages::headers_of(&dir.join("tree"), release);
    check_config(&headers.join(".config"), release)?;
    if let Some(module) = of.find(root, dir)? {
        return Ok(module);
    }
    let toolchain = match package.debian {
        Debian::Bookworm => None,
        Debian::Trixie => Some(build_root(lab, apt.as_ref(), &needs, go)?),
    };
    go.say(&format!("building {} for {release}", of.file));
    let against = Against { release, headers: &headers, toolchain: toolchain.as_ref() };
    build_module(of, root, dir, &against, go.stop)
}

/// The root in which Debian 13's headers are used. Creates it if it is missing.
fn build_root(lab: &Path, apt: Option<&Apt>, needs: &Path, go: &mut Go) -> Result<BuildRoot> {
    let dir = lab.join(TRIXIE);
    let names = fs::read_to_string(needs).map_err(io(needs))?;
    let names = names.lines().map(str::to_string).collect();
    if let Some(root) = BuildRoot::find(&dir, &names) {
        return Ok(root);
    }
    let apt = apt.ok_or_else(|| no_lists("the compiler of Debian 13".into()))?;
    go.say("downloading the compiler of Debian 13");
    BuildRoot::make(&dir, apt, &names, go.stop)
}

/// The newest stored kernel of this name that has `stamp`.
pub(crate) fn unpacked(lab: &Path, stamp: &str, name: &str) -> Option<String> {
    newest(&lab.join("kernels"), stamp, name)
}

/// The newest of the directories in `dir` that have a file `stamp` with this text.
pub(crate) fn newest(dir: &Path, stamp: &str, name: &str) -> Option<String> {
    let mut found: Vec<(std::time::SystemTime, String)> = fs::read_dir(dir)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let stamp = entry.path().join(stamp);
            let named = fs::read_to_string(&stamp).is_ok_and(|kept| kept == name);
            let release = entry.file_name().into_string().ok().filter(|_| named)?;
            Some((stamp.metadata().ok()?.modified().ok()?, release))
        })
        .collect();
    found.sort();
    found.pop().map(|(_, release)| release)
}

/// Options that the kernel must have, and their purpose.
const OPTIONS: &[(&str, &str)] = &[
    ("CONFIG_MODULES", "loading any module"),
    ("CONFIG_DYNAMIC_FTRACE", "hooking kvm_vcpu_on_spin()"),
    ("CONFIG_DYNAMIC_FTRACE_WITH_ARGS", "redirecting what it hooks"),
    ("CONFIG_TRACEPOINTS", "the probes"),
    ("CONFIG_KPROBES", "finding KVM's functions"),
    ("CONFIG_KVM", "there is nothing to improve"),
];

/// Checks the kernel's configuration. The module needs options that the headers do not show;
/// without this check a boot would fail.
pub(crate) fn check_config(path: &Path, release: &str) -> Result<()> {
    let config = fs::read_to_string(path).map_err(io(path))?;
    let has = |option: &str| {
        config
            .lines()
            .any(|line| line.strip_prefix(option).is_some_and(|rest| matches!(rest, "=y" | "=m")))
    };
    match OPTIONS.iter().find(|(option, _)| !has(option)) {
        None => Ok(()),
        Some(&(option, why)) => {
            Err(LabError::Unsuitable { release: release.into(), option: option.into(), why })
        }
    }
}
