// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin load`: loads the module, and reports obstacles.

use crate::detect;
use crate::exit::Cannot;
use crate::host;
use crate::sysfs::{self, Module};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use unspin_host::place::under;

/// The functions that the module redirects, and when.
const HOOKED: [(&str, &str); 2] = [
    ("kvm_vcpu_on_spin", "any VM is in a mode other than off"),
    ("xfer_to_guest_mode_handle_work", "VMs have turns"),
];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Load this file instead of the module installed for this kernel (DKMS, `make -C core/kmod
    /// install`).
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Build the module for the running kernel from the source tree, and load it.
    #[arg(long, conflicts_with = "module")]
    build: bool,
    /// Print what could prevent loading, and load nothing.
    #[arg(long)]
    check: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let root = Path::new("/");
    if sysfs::root().is_dir() {
        say!("the module is already loaded");
        return Module::open_same_version(&sysfs::root()).map(drop);
    }
    let release = host::release(root)?;
    let blocked = match args.build {
        true => host::obstacle(root, &release, host::is_root()),
        false => None,
    };
    let untested = host::untested(&release);
    let absent = match args.build || args.module.is_some() {
        true => None,
        false => not_installed(root, &release),
    };
    // Without --check, loading reports these itself.
    let before = blocked.iter().chain(&absent).filter(|_| args.check);
    for a in before.chain(&untested).chain(&advice(root)) {
        say!("note: {a}");
    }
    if args.check {
        return Ok(());
    }
    if let Some(why) = blocked {
        return Err(Cannot(why).into());
    }
    if !host::is_root() {
        return Err(Cannot("only root may load the module: sudo unspin load".into()).into());
    }
    let built = match args.build {
        true => Some(host::build(&release, &AtomicBool::new(false), &|text| say!("{text}"))?),
        false => None,
    };
    host::insert(built.as_deref().or(args.module.as_deref()))?;
    Module::open_same_version(&sysfs::root()).inspect_err(|_| {
        if let Err(e) = host::remove() {
            say!("the module stays loaded: {e:#}");
        }
    })?;
    say!(
        "loaded; every VM is in mode off. `unspin set mode=observe` counts for all VMs; `unspin \
         set --vm NAME mode=hvs` turns on HVS for 1 VM"
    );
    Ok(())
}

/// A note if modprobe would not find the module.
fn not_installed(root: &Path, release: &str) -> Option<String> {
    let list = root.join("lib/modules").join(release).join("modules.dep");
    let listed = fs::read_to_string(list).unwrap_or_default().contains("/unspin.ko");
    (!listed).then(|| {
        format!(
            "the module is not installed for this kernel: apt-get install unspin-dkms \
             linux-headers-{release}, or use `unspin load --build`"
        )
    })
}

/// Kernels that the module never supports.
fn refused_kernel(root: &Path) -> Option<&'static str> {
    let read = |p: &str| fs::read_to_string(under(root, p)).unwrap_or_default();
    if read("sys/kernel/realtime").trim() == "1" {
        return Some("this kernel is PREEMPT_RT, which the module does not support");
    }
    let is_module = read("proc/modules").lines().any(|l| l.starts_with("kvm "));
    (under(root, "sys/module/kvm").is_dir() && !is_module)
        .then_some("KVM is built into this kernel: the module needs KVM as a module")
}

/// Notes for users before loading, from the files of the host under `root`.
fn advice(root: &Path) -> Vec<String> {
    let mut out: Vec<String> = refused_kernel(root).map(String::from).into_iter().collect();
    if let Err(why) = detect::kvm(root) {
        out.push(format!("{why}: without PLE exits the module has no effect"));
    }
    let read = |p: &str| fs::read_to_string(under(root, p)).unwrap_or_default();
    if host::must_be_signed(root) {
        out.push(
            "Secure Boot or signature enforcement is on: sign the module with an enrolled key \
             (mokutil --import CERT.der)"
                .to_string(),
        );
    }
    let redirected = read("sys/kernel/tracing/enabled_functions");
    for (hooked, when) in HOOKED {
        let patches = livepatches(root, hooked);
        for patch in &patches {
            out.push(format!(
                "livepatch {patch} has replaced {hooked}, which the module replaces while {when}; \
                 only 1 can, so the module refuses this while the livepatch is loaded"
            ));
        }
        let is_redirected =
            |line: &str| line.split_whitespace().next() == Some(hooked) && line.contains(" I ");
        if patches.is_empty() && redirected.lines().any(is_redirected) {
            out.push(format!("another module has redirected {hooked} (ftrace, IPMODIFY)"));
        }
    }
    if under(root, "sys/kernel/livepatch").is_dir() {
        let [one, other] = HOOKED.map(|(hooked, _)| hooked);
        out.push(format!(
            "a livepatch loaded later takes precedence: the module releases its hooks while it \
             loads, and if it replaces {one} or {other}, every VM is set to off"
        ));
    }
    if read("proc/sys/kernel/ftrace_enabled").trim() == "0" {
        out.push("ftrace is off: sysctl kernel.ftrace_enabled=1".to_string());
    }
    out.push(
        "an out-of-tree module taints the kernel (flag O, and E if it is unsigned) until the next \
         boot"
            .to_string(),
    );
    out
}

/// Livepatches that replace a function: PATCH/OBJECT/FUNCTION,POSITION.
fn livepatches(root: &Path, function: &str) -> Vec<String> {
    let mut found = Vec::new();
    for patch in entries(&under(root, "sys/kernel/livepatch")) {
        let functions = entries(&patch).into_iter().flat_map(|object| entries(&object));
        let prefix = format!("{function},");
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
        file("proc/cpuinfo", b"flags\t: vmx\nvmx flags\t: ple\n");
        file("dev/kvm", b"");
        file("sys/module/kvm/refcnt", b"0\n");
        file("sys/module/kvm_intel/parameters/ple_gap", b"128\n");
        file("proc/modules", b"kvm_intel 1 0\nkvm 1 1\n");
        assert_eq!(advice(&root).len(), 1, "only the taint");
        file("sys/module/kvm_intel/parameters/ple_gap", b"0\n");
        file("proc/modules", b"kvm_intel 1 0\n");
        file("sys/firmware/efi/efivars/SecureBoot-8be4df61", &[6, 0, 0, 0, 1]);
        file("sys/kernel/livepatch/kpatch_7/kvm/kvm_vcpu_on_spin,1", b"");
        file("sys/kernel/livepatch/fix_2/vmlinux/xfer_to_guest_mode_handle_work,1", b"");
        file("proc/sys/kernel/ftrace_enabled", b"0\n");
        let text = advice(&root).join("\n");
        for what in [
            "built into",
            "ple_gap=0",
            "Secure Boot",
            "livepatch kpatch_7 has replaced kvm_vcpu_on_spin",
            "livepatch fix_2 has replaced xfer_to_guest_mode_handle_work",
            "which the module replaces while VMs have turns",
            "loaded later takes precedence",
            "ftrace_enabled=1",
            "taints",
        ] {
            assert!(text.contains(what), "{what} in {text}");
        }
        fs::remove_dir_all(under(&root, "sys/kernel/livepatch")).unwrap();
        assert!(!advice(&root).join("\n").contains("livepatch"));
        file("sys/kernel/tracing/enabled_functions", b"kvm_vcpu_on_spin (1) R I     tramp\n");
        assert!(advice(&root)
            .join("\n")
            .contains("redirected kvm_vcpu_on_spin (ftrace, IPMODIFY)"));
        file("sys/kernel/realtime", b"1\n");
        assert!(advice(&root)[0].contains("PREEMPT_RT"));
        assert!(not_installed(&root, "6.1").unwrap().contains("linux-headers-6.1"));
        file("lib/modules/6.1/modules.dep", b"updates/dkms/unspin.ko.xz: kernel/kvm.ko\n");
        assert_eq!(not_installed(&root, "6.1"), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
