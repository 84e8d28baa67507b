// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module on this host: whether it can be built and loaded, and building and loading it.

use crate::distribution::Distribution;
use crate::exit::Cannot;
use crate::kernel::{headers, text, Config};
use anyhow::{bail, Context};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unspin_host::euid;
use unspin_host::place::under;
use unspin_host::source::{errors_in_log, module_source, release_of_headers, series, work_dir};
use unspin_text::{read_kernel, read_kernel_text, Lock};

/// Kernel series that the module's tests boot.
pub const TESTED: [&str; 3] = ["6.1", "6.12", "7.3"];

/// Limit of the time in which the kernel unloads the module.
const UNLOAD_MAX: Duration = Duration::from_secs(30);

/// `uname -r` of the host under `root`. It is part of paths and of commands that people copy.
pub fn release(root: &Path) -> anyhow::Result<String> {
    let path = under(root, "proc/sys/kernel/osrelease");
    let text = read_kernel_text(&path).with_context(|| format!("cannot read {path:?}"))?;
    let release = text.trim();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._~:@,=%".contains(&byte);
    if series(release).is_none() || !release.bytes().all(is_plain) {
        bail!("{path:?} has no release of a kernel: {release:?}");
    }
    Ok(release.to_string())
}

/// The oldest kernel for which the module can be built, as in core/kmod/Kbuild.
pub const OLDEST: (u32, u32) = (6, 1);

/// Why the module does not support a kernel of this age. The build has the same error.
pub fn too_old(release: &str) -> Option<String> {
    let (oldest, than) = OLDEST;
    (series(release)? < OLDEST).then(|| {
        format!(
            "kernel {release} is too old for the module, which needs Linux {oldest}.{than} or later, \
             also where a distribution has added parts of later kernels"
        )
    })
}

/// Parts of the releases of kernels that a vendor has changed much, for years under the same version.
const OF_VENDORS: [&str; 3] = [".el", "uek", ".amzn"];

/// A note about kernels that the module's tests do not boot. The module itself checks whether it
/// works there.
pub fn untested(release: &str) -> Option<String> {
    let is_of = |series: &str| {
        let rest = release.strip_prefix(series);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let is_vendors = OF_VENDORS.iter().any(|part| release.contains(part));
    if (TESTED.into_iter().any(is_of) && !is_vendors) || too_old(release).is_some() {
        return None;
    }
    let whose = if is_vendors { ", without a vendor's changes" } else { "" };
    let names = TESTED.join(", ");
    Some(format!(
        "the module is not tested on kernel {release} (tested: {names}{whose}); the build and the \
         load check what it needs, and name what is missing"
    ))
}

/// Why the module cannot be built and loaded on the host under `root`; `None` if it can.
pub fn obstacle(root: &Path, release: &str, is_root: bool) -> Option<String> {
    if let Some(why) = too_old(release) {
        return Some(why);
    }
    if !is_root {
        return Some("only root may load the module".to_string());
    }
    if must_be_signed(root, &Config::of(root, release)) {
        return Some(UNSIGNED.to_string());
    }
    can_build(root, release).err()
}

/// Why a module that is built here does not load if it must be signed.
pub(crate) const UNSIGNED: &str =
    "Secure Boot, lockdown or signature enforcement is on: a module built here has no signature by \
     an enrolled key; sign it and use `unspin load --module FILE`";

/// Whether the kernel accepts only signed modules.
pub(crate) fn must_be_signed(root: &Path, config: &Config) -> bool {
    let read = |p: &str| text(&under(root, p)).unwrap_or_default();
    let lockdown = read("sys/kernel/security/lockdown");
    // With Secure Boot, too, an owner may have turned off the checks (mokutil --disable-validation).
    (secure_boot(root) && !lockdown.contains("[none]"))
        || ["[integrity]", "[confidentiality]"].iter().any(|level| lockdown.contains(level))
        || read("sys/module/module/parameters/sig_enforce").trim() == "Y"
        || config.has("CONFIG_MODULE_SIG_FORCE=y")
}

/// The firmware's variable: four bytes of attributes, then 1 if Secure Boot is on.
fn secure_boot(root: &Path) -> bool {
    let Ok(vars) = fs::read_dir(under(root, "sys/firmware/efi/efivars")) else {
        return false;
    };
    vars.flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with("SecureBoot-"))
        .filter_map(|e| read_kernel(e.path()).ok())
        .any(|bytes| bytes.get(4) == Some(&1))
}

pub fn is_root() -> bool {
    euid() == 0
}

/// Builds the module for the running kernel from the source tree. An existing build is reused.
pub fn build(release: &str, stop: &AtomicBool, say: &dyn Fn(&str)) -> anyhow::Result<PathBuf> {
    let root = Path::new("/");
    can_build(root, release).map_err(Cannot)?;
    let (sources, headers) = (module_source().join("kmod"), headers(root, release));
    say(&format!("building the module for {release}"));
    let dir = std::path::absolute(work_dir().join("host").join(release))?;
    let _alone = Lock::take(&dir)?;
    let log = dir.join("build.log");
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut make = Command::new("make");
    make.arg("-C").arg(&sources).arg(format!("KDIR={}", headers.display()));
    make.arg(format!("BUILD={}", dir.display())).env("LC_ALL", "C").stdin(Stdio::null());
    let status = make.stderr(output.try_clone()?).stdout(output).status();
    let status = status.map_err(|e| Cannot(format!("make cannot be started: {e}")))?;
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted; the module was not loaded");
    }
    if !status.success() {
        bail!(
            "building the module failed ({status}); its output is in {}\n{}",
            log.display(),
            errors_in_log(&log).join("\n")
        );
    }
    Ok(dir.join("kmod/unspin.ko"))
}

/// What is missing on the host under `root` to build the module, if anything.
pub(crate) fn can_build(root: &Path, release: &str) -> Result<(), String> {
    let distribution = Distribution::of(root, release);
    let (headers, advice) = (headers(root, release), distribution.headers(release));
    match release_of_headers(&headers) {
        Some(found) if found == release => {}
        Some(found) => {
            return Err(format!(
                "the headers in {} belong to kernel {found}, not to {release}, and a module built \
                 with them would not load: {advice}",
                headers.display()
            ))
        }
        None => return Err(format!("the headers of this kernel are not installed: {advice}")),
    }
    let sources = module_source().join("kmod");
    if !sources.join("Kbuild").is_file() {
        return Err(format!(
            "the sources of the module are not in {}: install unspin-dkms, or set UNSPIN_ROOT to a \
             checkout of the project",
            sources.display()
        ));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |tool: &&str| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file());
    let missing: Vec<&str> = ["make", "gcc"].into_iter().filter(|tool| !is_there(tool)).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "the build of the module needs: {}",
            distribution.install(&missing.join(" "))
        )),
    }
}

/// Loads the module from `file`, or the one installed for this kernel.
pub fn insert(file: Option<&Path>) -> anyhow::Result<()> {
    if file.is_some() {
        // Unlike modprobe, insmod does not load dependencies.
        let _ = Command::new("modprobe").args(["-q", "kvm"]).status();
    }
    let mut command = Command::new(if file.is_some() { "insmod" } else { "modprobe" });
    command.arg(file.unwrap_or("unspin".as_ref()));
    let out = command.output().context("cannot start modprobe or insmod (package kmod)")?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr).trim().to_string();
    match explain(&said).map(str::to_string).or_else(refusal) {
        Some(why) => Err(Cannot(format!("{said}\n{why}")).into()),
        None => bail!("{said}; see the kernel log (dmesg)"),
    }
}

/// The last reason in the kernel log why the module did not load.
fn refusal() -> Option<String> {
    let out = Command::new("dmesg").output().ok()?;
    let log = String::from_utf8_lossy(&out.stdout).into_owned();
    refusal_in(&log).map(str::to_string)
}

fn refusal_in(log: &str) -> Option<&str> {
    let line = log.lines().rev().find(|line| line.contains("unspin: "))?;
    line.split_once("unspin: ").map(|(_, said)| said).filter(|said| said.contains("not loading"))
}

/// Unloads the module. If the kernel does not release a hook, rmmod never returns and ignores signals; then
/// this stops waiting after [`UNLOAD_MAX`].
pub fn remove() -> anyhow::Result<()> {
    ends_within(Command::new("rmmod").arg("unspin"), UNLOAD_MAX)
}

fn ends_within(command: &mut Command, max: Duration) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let end = Instant::now() + max;
    let status = loop {
        if let Some(status) = child.try_wait().with_context(|| format!("cannot wait for {name}"))? {
            break status;
        }
        if Instant::now() > end {
            bail!(
                "{name} has not returned for {} s: the module stays until the next boot, and VMs \
                 run KVM's own code",
                max.as_secs()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
    bail!("{}", said.trim())
}

/// Advice for known messages of modprobe and insmod.
fn explain(said: &str) -> Option<&'static str> {
    let known = [
        ("Key was rejected", "The kernel requires a signed module: sign it (kmodsign, or the key of DKMS) and enrol that key (mokutil --import CERT.der, then confirm it at the next boot)."),
        ("Required key not available", "The kernel requires a signed module, and the key of this one is not enrolled: mokutil --import CERT.der, then confirm it at the next boot."),
        ("Operation not permitted", "The kernel is locked down (Secure Boot): sign the module and enrol the key with mokutil --import."),
        ("not found", "The module is not installed for this kernel: install the package unspin-dkms and the headers of this kernel. From the sources: `unspin load --build` or `make -C core/kmod install`. Or name a file: --module FILE."),
        ("Invalid module format", "The module was built for another kernel: rebuild it with the headers of this kernel (`unspin load --build`)."),
        ("Device or resource busy", "Another module or a livepatch has already replaced kvm_vcpu_on_spin, and only 1 can (see the notes above)."),
        ("Unknown symbol", "KVM is not loaded, or lacks a symbol that the module needs: run modprobe kvm_intel or modprobe kvm_amd first."),
    ];
    known.iter().find(|(words, _)| said.contains(words)).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scratch::Scratch;

    const DEBIAN: &str = "6.12.43+deb13-amd64";

    #[test]
    fn an_absolute_link_to_headers_is_below_the_hosts_root() {
        let root = Scratch::with(&[("usr/src/of-the-host/Makefile", "")]);
        root.link("lib/modules/6.12/build", "/usr/src/of-the-host");
        assert_eq!(headers(&root, "6.12"), root.join("usr/src/of-the-host"));
    }

    #[test]
    fn secure_boot_alone_requires_no_signature() {
        let root = Scratch::new();
        let is_required = || must_be_signed(&root, &Config::of(&root, DEBIAN));
        assert!(!is_required());
        let lockdown = "sys/kernel/security/lockdown";
        for level in ["none [integrity] confidentiality", "none integrity [confidentiality]"] {
            root.line(lockdown, level);
            assert!(is_required(), "{level}");
        }
        fs::remove_file(root.join(lockdown)).unwrap();
        root.write("sys/firmware/efi/efivars/SecureBoot-8be4df61", [6u8, 0, 0, 0, 1]);
        assert!(is_required(), "a kernel that shows no lockdown");
        for (file, text, wanted) in [
            (lockdown, "[none] integrity confidentiality", false),
            ("sys/module/module/parameters/sig_enforce", "N", false),
            ("sys/module/module/parameters/sig_enforce", "Y", true),
            ("sys/module/module/parameters/sig_enforce", "N", false),
            (&*format!("boot/config-{DEBIAN}"), "CONFIG_MODULE_SIG_FORCE=y", true),
        ] {
            root.line(file, text);
            assert_eq!(is_required(), wanted, "{file}: {text}");
        }
    }

    #[test]
    fn what_never_returns_is_not_waited_for() {
        let begin = Instant::now();
        let mut sleep = Command::new("sleep");
        let stuck = ends_within(sleep.arg("2"), Duration::from_millis(50)).unwrap_err();
        assert!(stuck.to_string().contains("until the next boot"), "{stuck}");
        assert!(begin.elapsed() < Duration::from_secs(2));
        let mut busy = Command::new("sh");
        busy.args(["-c", "echo Module unspin is in use >&2; exit 1"]);
        let busy = ends_within(&mut busy, Duration::from_secs(60)).unwrap_err();
        assert_eq!(busy.to_string(), "Module unspin is in use");
        assert!(ends_within(&mut Command::new("true"), Duration::from_secs(60)).is_ok());
    }

    #[test]
    fn kernels_beside_the_tested_series_are_not_taken_for_them() {
        for release in ["6.1.0-40-amd64", "6.12.43+deb13-amd64", "6.12.0"] {
            assert_eq!(untested(release), None, "{release}");
        }
        for release in ["6.13.1", "6.10.11", "6.120.1", "16.12.1", ""] {
            assert!(untested(release).is_some(), "{release}");
        }
        for release in [
            "6.12.0-55.9.1.el10_0.x86_64",
            "6.12.0-100.28.2.el9uek.x86_64",
            "6.1.119-129.201.amzn2023.x86_64",
        ] {
            assert!(untested(release).unwrap().contains("a vendor's changes"), "{release}");
        }
    }

    #[test]
    fn old_kernels_are_refused_by_name() {
        for release in
            ["4.18.0-553.el8.x86_64", "5.14.0-503.el9.x86_64", "5.15.0-91-generic", "6.0.1"]
        {
            assert!(too_old(release).unwrap().contains(release), "{release}");
            assert!(obstacle(Path::new("/nonexistent"), release, true).unwrap().contains("6.1"));
        }
        for release in
            ["6.1.0-40-amd64", "6.12.43+deb13-amd64", "7.0.14-14-pve", "10.0.1", "", "next"]
        {
            assert_eq!(too_old(release), None, "{release}");
        }
        let kbuild = fs::read_to_string(module_source().join("kmod/Kbuild")).unwrap();
        let (major, minor) = OLDEST;
        assert!(kbuild.contains(&format!("unspin-oldest := {major} {minor}\n")), "{kbuild}");
    }

    #[test]
    fn the_modules_own_refusal_is_found_in_the_log() {
        let log = "[ 1.0] unspin: not loading: an argument of kvm_vcpu_on_spin is not what\n[ 1.1] kvm: x\n";
        assert!(refusal_in(log)
            .unwrap()
            .starts_with("not loading: an argument of kvm_vcpu_on_spin"));
        let later = format!("{log}[ 2.0] unspin: 0.1.0 loaded, every VM is in mode off\n");
        assert_eq!(refusal_in(&later), None);
        assert_eq!(refusal_in(""), None);
    }

    #[test]
    fn the_kernels_refusals_are_explained() {
        let key = "modprobe: ERROR: could not insert 'unspin': Key was rejected by service";
        assert!(explain(key).unwrap().contains("mokutil"));
        assert!(explain("modprobe: FATAL: Module unspin not found in directory").is_some());
        assert!(explain("something new").is_none());
    }

    #[test]
    fn the_make_target_advised_exists() {
        let why = explain("Module unspin not found").unwrap();
        let target =
            why.split("`make -C core/kmod ").nth(1).and_then(|rest| rest.split('`').next());
        let makefile = module_source().join("kmod/Makefile");
        let text = fs::read_to_string(makefile).unwrap();
        let rule = format!("{}:", target.unwrap());
        assert!(text.lines().any(|line| line.starts_with(&rule)), "no rule {rule}");
    }
}
