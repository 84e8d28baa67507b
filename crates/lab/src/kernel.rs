// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stock kernels for the emulated computers: found, downloaded and unpacked from the distribution's
//! packages, and the module built against their headers. Nothing is installed on this computer.

use crate::error::{io, LabError, Result};
use crate::lock::Lock;
use crate::tool;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// A kernel series the module is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Series {
    V6_1,
    V6_12,
}

impl Series {
    pub const ALL: [Series; 2] = [Series::V6_1, Series::V6_12];

    pub fn name(self) -> &'static str {
        match self {
            Series::V6_1 => "6.1",
            Series::V6_12 => "6.12",
        }
    }

    pub fn parse(name: &str) -> Option<Series> {
        Series::ALL.into_iter().find(|series| series.name() == name)
    }

    /// The series of a kernel that calls itself `release` (`uname -r`).
    pub fn of_release(release: &str) -> Option<Series> {
        Series::ALL.into_iter().find(|series| {
            release.strip_prefix(series.name()).is_some_and(|rest| rest.starts_with('.'))
        })
    }

    /// Meta packages that depend on the series' current cloud kernel, best first.
    fn meta_packages(self) -> [String; 2] {
        [format!("linux-image-{}-cloud-amd64", self.name()), "linux-image-cloud-amd64".to_string()]
    }
}

/// A kernel ready to boot, with the module built for it.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub series: Series,
    /// As `uname -r` will say.
    pub release: String,
    pub vmlinuz: PathBuf,
    /// Uncompressed modules: irqbypass, kvm, kvm-intel, kvm-amd.
    pub modules: Vec<PathBuf>,
    pub headers: PathBuf,
    /// `unspin.ko`.
    pub module: PathBuf,
}

/// Resolve, fetch and unpack the current kernel of a series and build the module for it.
/// `say` is told each step that takes time. What is there already is used again. Once `stop` is set
/// it ends, and goes on there the next time.
pub fn prepare(
    root: &Path,
    lab: &Path,
    series: Series,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<Kernel> {
    let release = match resolve(series) {
        // Without package lists, what was unpacked before still serves.
        Err(error) => unpacked(lab, &format!("{}.", series.name())).ok_or(error)?,
        Ok(release) => release,
    };
    let dir = lab.join("kernels").join(&release);
    let done = dir.join("unpacked");
    if !done.exists() {
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).map_err(io(&dir))?;
        say(&format!("downloading kernel {release}"));
        fetch(&dir, &release, stop)?;
        fs::write(&done, &release).map_err(io(&done))?;
    }
    check_config(&dir.join("tree/boot").join(format!("config-{release}")), &release)?;
    let headers = dir.join("tree/usr/src").join(format!("linux-headers-{release}"));
    say(&format!("building the module for {release}"));
    let module = build_module(root, &dir, &headers, stop)?;
    let vmlinuz = dir.join("tree/boot").join(format!("vmlinuz-{release}"));
    Ok(Kernel { series, release, vmlinuz, modules: modules_in(&dir), headers, module })
}

/// KVM's modules in a kernel's directory.
pub(crate) fn modules_in(dir: &Path) -> Vec<PathBuf> {
    MODULES.map(|(_, name)| dir.join(format!("{name}.ko"))).to_vec()
}

/// The newest directory of a kernel whose name begins so that is unpacked already.
pub(crate) fn unpacked(lab: &Path, prefix: &str) -> Option<String> {
    let mut found: Vec<(std::time::SystemTime, String)> = fs::read_dir(lab.join("kernels"))
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|n| n.starts_with(prefix))?;
            Some((entry.path().join("unpacked").metadata().ok()?.modified().ok()?, name))
        })
        .collect();
    found.sort();
    found.pop().map(|(_, release)| release)
}

/// KVM's modules, in the order they are loaded, and where in the kernel's tree they are.
pub(crate) const MODULES: [(&str, &str); 4] = [
    ("virt/lib", "irqbypass"),
    ("arch/x86/kvm", "kvm"),
    ("arch/x86/kvm", "kvm-intel"),
    ("arch/x86/kvm", "kvm-amd"),
];

/// Options the kernel must have, and what for.
const OPTIONS: &[(&str, &str)] = &[
    ("CONFIG_MODULES", "loading any module"),
    ("CONFIG_DYNAMIC_FTRACE", "hooking kvm_vcpu_on_spin()"),
    ("CONFIG_DYNAMIC_FTRACE_WITH_ARGS", "redirecting what it hooks"),
    ("CONFIG_TRACEPOINTS", "the probes"),
    ("CONFIG_KPROBES", "finding KVM's functions"),
    ("CONFIG_KVM", "there is nothing to improve"),
];

/// The module needs more of a kernel than its headers show; say what is missing before a boot does.
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

/// The release (`uname -r`) of the series' current package.
fn resolve(series: Series) -> Result<String> {
    let metas = series.meta_packages();
    for meta in &metas {
        let Some(text) = tool::output(Command::new("apt-cache").args(["depends", meta])) else {
            continue;
        };
        let prefix = format!("linux-image-{}.", series.name());
        let found = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|name| name.starts_with(&prefix));
        if let Some(package) = found {
            return Ok(package.trim_start_matches("linux-image-").to_string());
        }
    }
    Err(LabError::NoKernelPackage { series: series.name().into(), looked: metas.join(", ") })
}

fn fetch(dir: &Path, release: &str, stop: &AtomicBool) -> Result<()> {
    let log = dir.join("fetch.log");
    let tree = dir.join("tree");
    let flavour_free = release.trim_end_matches("-cloud-amd64");
    let mut packages = vec![
        format!("linux-image-{release}"),
        format!("linux-headers-{release}"),
        format!("linux-headers-{flavour_free}-common"),
    ];
    packages.push(kbuild_package(&format!("linux-headers-{release}"))?);
    for package in &packages {
        download(dir, package, &log, stop)?;
    }
    unpack_packages(dir, &tree, &log, stop)?;
    relocate_headers(&tree, release)?;
    for (sub, name) in MODULES {
        extract_module(&tree, release, sub, name, dir)?;
    }
    Ok(())
}

/// Download a package into `dir`.
pub(crate) fn download(dir: &Path, package: &str, log: &Path, stop: &AtomicBool) -> Result<()> {
    let mut get = Command::new("apt-get");
    get.args(["-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::http::Timeout=30"])
        .args(["download", package])
        .current_dir(dir);
    tool::run(&format!("downloading {package}"), &mut get, log, stop).map_err(|error| match error {
        LabError::Step { tail, .. } => {
            LabError::Download { package: package.into(), detail: tail.trim().into() }
        }
        other => other,
    })
}

/// Unpack every package in `dir` to `tree`; the packages themselves are removed.
pub(crate) fn unpack_packages(
    dir: &Path,
    tree: &Path,
    log: &Path,
    stop: &AtomicBool,
) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(io(dir))?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "deb") {
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("-x").arg(&path).arg(tree);
            tool::run(&format!("unpacking {}", path.display()), &mut unpack, log, stop)?;
            fs::remove_file(&path).map_err(io(&path))?;
        }
    }
    Ok(())
}

/// The kbuild package a headers package depends on; its name does not follow the release's.
fn kbuild_package(headers: &str) -> Result<String> {
    let text = tool::output(Command::new("apt-cache").args(["depends", headers]));
    text.unwrap_or_default()
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-kbuild-"))
        .map(str::to_string)
        .ok_or_else(|| LabError::Download {
            package: headers.to_string(),
            detail: "it depends on no linux-kbuild package".into(),
        })
}

/// The packages expect to lie in /usr; point their one absolute path into the unpacked tree.
fn relocate_headers(tree: &Path, release: &str) -> Result<()> {
    let makefile = tree.join("usr/src").join(format!("linux-headers-{release}")).join("Makefile");
    let text = fs::read_to_string(&makefile).map_err(io(&makefile))?;
    let here = fs::canonicalize(tree).map_err(io(tree))?;
    let text = text.replace("include /usr/src", &format!("include {}/usr/src", here.display()));
    fs::write(&makefile, text).map_err(io(&makefile))
}

fn extract_module(tree: &Path, release: &str, sub: &str, name: &str, dir: &Path) -> Result<()> {
    let base = tree.join("lib/modules").join(release).join("kernel").join(sub);
    let plain = base.join(format!("{name}.ko"));
    let target = dir.join(format!("{name}.ko"));
    if plain.exists() {
        fs::copy(&plain, &target).map_err(io(&target))?;
        return Ok(());
    }
    let packed = base.join(format!("{name}.ko.xz"));
    let out = Command::new("xz").arg("-dc").arg(&packed).output().map_err(|_| {
        LabError::MissingTool { tool: "xz".into(), package: tool::package_of("xz").into() }
    })?;
    if !out.status.success() {
        return Err(LabError::Step {
            what: format!("unpacking {name}.ko"),
            status: out.status.to_string(),
            log: packed,
            tail: String::from_utf8_lossy(&out.stderr).into_owned(),
        });
    }
    fs::write(&target, out.stdout).map_err(io(&target))
}

/// Build the module for a kernel installed on this computer: `release` is its `uname -r`, `headers`
/// where its headers are. What was built is kept.
pub fn build_host_module(release: &str, headers: &Path, stop: &AtomicBool) -> Result<PathBuf> {
    let root = crate::source_tree();
    crate::check_sources(&root)?;
    let dir = crate::work_dir().join("host").join(release);
    let dir = std::path::absolute(&dir).map_err(io(&dir))?;
    let _lock = Lock::take(&dir)?;
    build_module(&root, &dir, headers, stop)
}

/// Build the module in a copy of its sources, so that two kernels do not share object files.
pub(crate) fn build_module(
    root: &Path,
    dir: &Path,
    headers: &Path,
    stop: &AtomicBool,
) -> Result<PathBuf> {
    let work = dir.join("build");
    for part in ["kmod", "policy", "uapi"] {
        copy_tree(&root.join(part), &work.join(part))?;
    }
    let log = dir.join("build.log");
    let _ = fs::remove_file(&log);
    let mut make = Command::new("make");
    make.arg("-C").arg(work.join("kmod")).arg(format!("KDIR={}", headers.display()));
    tool::run("building the module", &mut make, &log, stop)?;
    // Its debugging data is twenty times its code, and an emulated BIOS would read it all.
    let module = dir.join("unspin.ko");
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg("-o").arg(&module).arg(work.join("kmod/unspin.ko"));
    tool::run("stripping the module", &mut strip, &log, stop)?;
    Ok(module)
}

/// Names and contents of everything the module is built from, in a fixed order.
pub(crate) fn module_sources(root: &Path) -> Result<Vec<Vec<u8>>> {
    let mut files = Vec::new();
    for part in ["kmod", "policy", "uapi"] {
        sources_in(&root.join(part), &mut files)?;
    }
    files.sort();
    let mut out = Vec::new();
    for file in files {
        let name = file.strip_prefix(root).unwrap_or(&file);
        out.push(name.to_string_lossy().into_owned().into_bytes());
        out.push(fs::read(&file).map_err(io(&file))?);
    }
    Ok(out)
}

fn sources_in(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(io(dir))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if entry.file_name() != "test" {
                sources_in(&path, files)?;
            }
        } else if is_source(&path) {
            files.push(path);
        }
    }
    Ok(())
}

/// What the kernel's build reads, and not what it makes: those begin with a dot or have an ending.
fn is_source(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let ending = path.extension().and_then(|ending| ending.to_str());
    let made = path.to_str().is_some_and(|p| p.ends_with(".mod.c"));
    !hidden && !made && ending.is_none_or(|ending| matches!(ending, "c" | "h" | "S"))
}

/// Copy what changed: equal files keep their times, so that make does not rebuild.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(io(to))?;
    for entry in fs::read_dir(from).map_err(io(from))?.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            if entry.file_name() != "test" {
                copy_tree(&source, &target)?;
            }
            continue;
        }
        if !is_source(&source) {
            continue;
        }
        let new = fs::read(&source).map_err(io(&source))?;
        if fs::read(&target).ok().as_ref() != Some(&new) {
            fs::write(&target, new).map_err(io(&target))?;
        }
    }
    Ok(())
}
