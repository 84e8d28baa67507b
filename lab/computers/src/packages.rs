// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel's packages, and the places of their parts after unpacking.

use crate::apt::Apt;
use crate::error::{io, LabError, Result};
use crate::series::KernelPackage;
use crate::tool;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// KVM's modules in the order of loading, with their directories in the kernel's tree.
pub(crate) const MODULES: [(&str, &str); 4] = [
    ("virt/lib", "irqbypass"),
    ("arch/x86/kvm", "kvm"),
    ("arch/x86/kvm", "kvm-intel"),
    ("arch/x86/kvm", "kvm-amd"),
];

/// A module on which kvm-amd depends if the kernel supports AMD's secure processor.
const AMD_SECURE_PROCESSOR: (&str, &str) = ("drivers/crypto/ccp", "ccp");

/// The release (`uname -r`) of a package's current version.
pub(crate) fn resolve(apt: &Apt, package: KernelPackage) -> Result<String> {
    let metas = package.meta_packages();
    let prefix = format!("linux-image-{}.", package.series.name());
    for meta in &metas {
        let depends = apt.depends(meta, package.suite()).unwrap_or_default();
        if let Some(name) = depends.iter().find(|name| name.starts_with(&prefix)) {
            return Ok(name.trim_start_matches("linux-image-").to_string());
        }
    }
    Err(LabError::NoKernelPackage { series: package.name(), looked: metas.join(", ") })
}

/// Downloads a kernel's headers and unpacks them to `dir/tree`. Returns the packages that are
/// needed to build against them.
pub(crate) fn fetch_headers(
    apt: &Apt,
    package: KernelPackage,
    dir: &Path,
    release: &str,
    stop: &AtomicBool,
) -> Result<Vec<String>> {
    let headers = format!("linux-headers-{release}");
    let flavour_free = release.trim_end_matches(&format!("-{}", package.flavour.name()));
    let (kbuild, needs) = kbuild_of(apt, &headers)?;
    let common = format!("linux-headers-{flavour_free}-common");
    fetch(apt, dir, &[headers, common, kbuild], stop)?;
    relocate_headers(&dir.join("tree"), release)?;
    Ok(needs.into_iter().collect())
}

/// Downloads a kernel and unpacks it to `dir/tree`, and KVM's modules to `dir`.
pub(crate) fn fetch_kernel(apt: &Apt, dir: &Path, release: &str, stop: &AtomicBool) -> Result<()> {
    fetch(apt, dir, &parts(apt, release), stop)?;
    let tree = dir.join("tree");
    for (sub, name) in MODULES {
        if !extract_module(&tree, release, sub, name, dir)? {
            let (option, why) = (format!("{name}.ko"), "KVM must be a module");
            return Err(LabError::Unsuitable { release: release.into(), option, why });
        }
    }
    let (sub, name) = AMD_SECURE_PROCESSOR;
    extract_module(&tree, release, sub, name, dir).map(|_| ())
}

fn fetch(apt: &Apt, dir: &Path, packages: &[String], stop: &AtomicBool) -> Result<()> {
    let log = dir.join("fetch.log");
    apt.download(dir, packages, &log, stop)?;
    unpack(dir, &dir.join("tree"), &log, stop)
}

/// The image's package and, since 7.x, those into which its contents are split.
fn parts(apt: &Apt, release: &str) -> Vec<String> {
    let image = format!("linux-image-{release}");
    let suffix = format!("-{release}");
    let mut parts: BTreeSet<String> =
        apt.depends(&image, None).unwrap_or_default().into_iter().collect();
    parts.retain(|name| name.starts_with("linux-") && name.ends_with(&suffix));
    parts.into_iter().chain([image]).collect()
}

/// The kbuild package on which a headers package depends (its name does not follow the release's),
/// and all packages on which the two depend that are not kernels.
fn kbuild_of(apt: &Apt, headers: &str) -> Result<(String, BTreeSet<String>)> {
    let mut depends = apt.depends(headers, None).unwrap_or_default();
    let kbuild = depends.iter().find(|name| name.starts_with("linux-kbuild-")).cloned();
    let kbuild = kbuild.ok_or_else(|| LabError::Download {
        package: headers.to_string(),
        detail: "it depends on no linux-kbuild package".into(),
    })?;
    depends.extend(apt.depends(&kbuild, None).unwrap_or_default());
    Ok((kbuild, not_kernels(depends)))
}

/// Only real packages: `<name>` is a virtual one.
fn not_kernels(names: Vec<String>) -> BTreeSet<String> {
    names.into_iter().filter(|name| !name.starts_with("linux-") && !name.starts_with('<')).collect()
}

/// Unpacks every package in `dir` to `tree`, and removes the packages.
pub(crate) fn unpack(dir: &Path, tree: &Path, log: &Path, stop: &AtomicBool) -> Result<()> {
    let mut packages: Vec<PathBuf> =
        fs::read_dir(dir).map_err(io(dir))?.flatten().map(|entry| entry.path()).collect();
    packages.retain(|path| path.extension().is_some_and(|ending| ending == "deb"));
    // A root's /bin and /lib are links, which this package provides.
    let is_base = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"base-files_"))
    };
    packages.sort_by_key(|path| (!is_base(path), path.clone()));
    for path in packages {
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(&path).arg(tree);
        tool::run(&format!("unpacking {}", path.display()), &mut unpack, log, stop)?;
        fs::remove_file(&path).map_err(io(&path))?;
    }
    Ok(())
}

/// Makes absolute paths point into the unpacked tree: the packages assume that they are in /usr.
fn relocate_headers(tree: &Path, release: &str) -> Result<()> {
    let makefile = headers_of(tree, release).join("Makefile");
    let text = fs::read_to_string(&makefile).map_err(io(&makefile))?;
    let here = fs::canonicalize(tree).map_err(io(tree))?;
    let text = text.replace("/usr/src/", &format!("{}/usr/src/", here.display()));
    fs::write(&makefile, text).map_err(io(&makefile))
}

/// The directory of an unpacked kernel's headers.
pub(crate) fn headers_of(tree: &Path, release: &str) -> PathBuf {
    tree.join("usr/src").join(format!("linux-headers-{release}"))
}

/// The file of an unpacked kernel; 7.x stores it with its modules.
pub(crate) fn vmlinuz_of(tree: &Path, release: &str) -> PathBuf {
    let with_modules = tree.join("usr/lib/modules").join(release).join("vmlinuz");
    match with_modules.exists() {
        true => with_modules,
        false => tree.join("boot").join(format!("vmlinuz-{release}")),
    }
}

/// Puts an uncompressed module into `dir`. Returns whether the kernel has this module.
fn extract_module(tree: &Path, release: &str, sub: &str, name: &str, dir: &Path) -> Result<bool> {
    let Some(contents) = module_of(tree, release, sub, name)? else { return Ok(false) };
    let target = dir.join(format!("{name}.ko"));
    fs::write(&target, contents).map_err(io(&target)).map(|()| true)
}

/// An uncompressed module of an unpacked kernel. `None`: the kernel does not have this module.
pub(crate) fn module_of(
    tree: &Path,
    release: &str,
    sub: &str,
    name: &str,
) -> Result<Option<Vec<u8>>> {
    for lib in ["lib/modules", "usr/lib/modules"] {
        let base = tree.join(lib).join(release).join("kernel").join(sub);
        let plain = base.join(format!("{name}.ko"));
        let packed = base.join(format!("{name}.ko.xz"));
        if plain.exists() {
            return fs::read(&plain).map_err(io(&plain)).map(Some);
        }
        if packed.exists() {
            return uncompressed(&packed).map(Some);
        }
    }
    Ok(None)
}

fn uncompressed(packed: &Path) -> Result<Vec<u8>> {
    let out = Command::new("xz").arg("-dc").arg(packed).output().map_err(|_| tool::absent("xz"))?;
    if out.status.success() {
        return Ok(out.stdout);
    }
    Err(LabError::Step {
        what: format!("uncompressing {}", packed.display()),
        status: out.status.to_string(),
        log: packed.to_path_buf(),
        tail: String::from_utf8_lossy(&out.stderr).into_owned(),
    })
}

/// KVM's modules in a kernel's directory, in the order of loading.
pub(crate) fn modules_in(dir: &Path) -> Vec<PathBuf> {
    let (_, ccp) = AMD_SECURE_PROCESSOR;
    let optional = Some(dir.join(format!("{ccp}.ko"))).filter(|path| path.exists());
    optional.into_iter().chain(MODULES.map(|(_, name)| dir.join(format!("{name}.ko")))).collect()
}
