// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin load`: puts the module into this host's kernel, and says what stands in its way.

use crate::exit::Cannot;
use crate::sysfs::ROOT;
use anyhow::{bail, Context};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The one function the module hooks.
const HOOKED: &str = "kvm_vcpu_on_spin";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The module's file, instead of the one installed for this kernel (by DKMS).
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Only say what stands in the way.
    #[arg(long)]
    check: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let host = Path::new("/");
    let advice = advice(host);
    if Path::new(ROOT).is_dir() {
        eprintln!("the module is loaded already");
        return Ok(());
    }
    for a in &advice {
        eprintln!("note: {a}");
    }
    if args.check {
        return Ok(());
    }
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return Err(Cannot("only root may load a module (sudo unspin load)".into()).into());
    }
    let mut command = match &args.module {
        Some(file) => {
            let mut c = Command::new("insmod");
            c.arg(file);
            c
        }
        None => {
            let mut c = Command::new("modprobe");
            c.arg("unspin");
            c
        }
    };
    let out = command.output().context("cannot start modprobe or insmod (package kmod)")?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr).trim().to_string();
        match explain(&said) {
            Some(why) => return Err(Cannot(format!("{said}\n{why}")).into()),
            None => bail!("{said}; the kernel's log (dmesg) says more"),
        }
    }
    eprintln!("loaded; the default mode is off: `unspin set mode=apples` turns it on");
    Ok(())
}

/// What modprobe's words mean for the user.
fn explain(said: &str) -> Option<&'static str> {
    let known = [
        ("Key was rejected", "The kernel wants a signed module: sign it (kmodsign, or DKMS's own key) and enrol that key: mokutil --import CERT.der, then confirm it at the next boot."),
        ("Required key not available", "The kernel wants a signed module and knows no key for this one: mokutil --import CERT.der, then confirm it at the next boot."),
        ("Operation not permitted", "The kernel is locked down (Secure Boot): sign the module and enrol the key with mokutil --import."),
        ("not found", "No module is installed for this kernel: `make -C kmod install` or DKMS, or give --module FILE."),
        ("Invalid module format", "The module was built for another kernel: build it again against this kernel's headers."),
        ("Device or resource busy", "Something else has hooked kvm_vcpu_on_spin, often a distribution's livepatch; only one can (see the notes above)."),
        ("Unknown symbol", "KVM is not loaded, or lacks what the module needs: modprobe kvm_intel or kvm_amd first."),
    ];
    known.iter().find(|(words, _)| said.contains(words)).map(|(_, why)| *why)
}

/// What a user should know before loading, from the files of the host under `root`.
fn advice(root: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let read = |p: &str| fs::read_to_string(root.join(p)).unwrap_or_default();
    let enforced = read("sys/module/module/parameters/sig_enforce").trim() == "Y";
    if secure_boot(root) || enforced || read("sys/kernel/security/lockdown").contains("[integrity]")
    {
        out.push(
            "Secure Boot or signature enforcement is on: the module must be signed with an enrolled key (mokutil --import CERT.der)"
                .to_string(),
        );
    }
    for patch in livepatches(root) {
        out.push(format!("livepatch {patch} has replaced {HOOKED}: the module cannot hook it too"));
    }
    if read("sys/kernel/tracing/enabled_functions")
        .lines()
        .any(|l| l.split_whitespace().next() == Some(HOOKED) && l.contains(" I "))
    {
        out.push(format!("something else has redirected {HOOKED} (ftrace, IPMODIFY)"));
    }
    if read("proc/sys/kernel/ftrace_enabled").trim() == "0" {
        out.push("ftrace is off: sysctl kernel.ftrace_enabled=1".to_string());
    }
    out.push(
        "loading an out-of-tree module taints the kernel (flag O, and E if it is unsigned) until the next boot"
            .to_string(),
    );
    out
}

/// The firmware's variable: four bytes of attributes, then 1 if Secure Boot is on.
fn secure_boot(root: &Path) -> bool {
    let Ok(vars) = fs::read_dir(root.join("sys/firmware/efi/efivars")) else {
        return false;
    };
    vars.flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with("SecureBoot-"))
        .filter_map(|e| fs::read(e.path()).ok())
        .any(|bytes| bytes.get(4) == Some(&1))
}

/// Livepatches that replace the function we hook: PATCH/OBJECT/FUNCTION,POSITION.
fn livepatches(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for patch in entries(&root.join("sys/kernel/livepatch")) {
        let functions = entries(&patch).into_iter().flat_map(|object| entries(&object));
        let prefix = format!("{HOOKED},");
        if functions.into_iter().any(|f| name(&f).starts_with(&prefix)) {
            found.push(name(&patch));
        }
    }
    found
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).map(|d| d.flatten().map(|e| e.path()).collect()).unwrap_or_default()
}

fn name(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_what_stands_in_the_way() {
        let root = std::env::temp_dir().join(format!("unspin-load-{}", std::process::id()));
        let file = |path: &str, bytes: &[u8]| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        file("proc/sys/kernel/ftrace_enabled", b"1\n");
        assert_eq!(advice(&root).len(), 1, "only the taint");
        file("sys/firmware/efi/efivars/SecureBoot-8be4df61", &[6, 0, 0, 0, 1]);
        file("sys/kernel/livepatch/kpatch_7/kvm/kvm_vcpu_on_spin,1", b"");
        file("sys/kernel/tracing/enabled_functions", b"kvm_vcpu_on_spin (1) R I     tramp\n");
        file("proc/sys/kernel/ftrace_enabled", b"0\n");
        let text = advice(&root).join("\n");
        for what in ["Secure Boot", "livepatch kpatch_7", "IPMODIFY", "ftrace_enabled=1", "taints"]
        {
            assert!(text.contains(what), "{what} in {text}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_kernels_refusals_are_explained() {
        let key = "modprobe: ERROR: could not insert 'unspin': Key was rejected by service";
        assert!(explain(key).unwrap().contains("mokutil"));
        assert!(explain("modprobe: FATAL: Module unspin not found in directory").is_some());
        assert!(explain("something new").is_none());
    }
}
