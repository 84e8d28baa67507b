// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin load --check` on hosts made of files: the verdict, the reasons, the advice.

mod common;

use common::{command, json, said};
use serde_json::Value;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use unspin_scratch::Scratch;

/// A host that can have the module: Intel with PLE, Debian's kernel, the module installed.
struct Host(Scratch);

/// CONFIG_CFI=y and CONFIG_LTO_CLANG=y, as gzip writes them.
const CONFIG_GZ: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x73\xf6\xf7\x73\xf3\x74\x8f\x77\x76\xf3\xb4\xad\
    \xe4\x72\x86\x70\x7c\x42\xfc\xe3\x9d\x7d\x1c\xfd\xdc\x81\x42\x00\x0d\xc6\x93\xa0\x20\x00\
    \x00\x00";

const KERNEL: &str = "6.12.43+deb13-amd64";

impl Host {
    fn new() -> Host {
        let host = Host(Scratch::new());
        host.kernel(KERNEL);
        host.file("proc/sys/kernel/ftrace_enabled", b"1\n");
        host.file("proc/cpuinfo", b"flags\t: vmx\nvmx flags\t: ple\n");
        host.file("proc/modules", b"kvm_intel 1 0\nkvm 1 1\n");
        host.file("sys/module/kvm/refcnt", b"0\n");
        host.file("sys/module/kvm_intel/parameters/ple_gap", b"128\n");
        host.file("sys/kernel/btf/vmlinux", b"");
        host.file("sys/kernel/btf/kvm", b"");
        host.file("etc/os-release", b"ID=debian\n");
        let list = format!("lib/modules/{KERNEL}/modules.dep");
        host.file(&list, b"updates/dkms/unspin.ko.xz: kernel/kvm.ko\n");
        host
    }

    fn kernel(&self, release: &str) {
        self.0.line("proc/sys/kernel/osrelease", release);
    }

    fn file(&self, path: &str, bytes: &[u8]) {
        self.0.write(path, bytes);
    }

    fn remove(&self, path: &str) {
        let path = self.0.join(path);
        let removed = match path.is_dir() {
            true => std::fs::remove_dir_all(path),
            false => std::fs::remove_file(path),
        };
        removed.unwrap();
    }

    /// Headers of a kernel where those of this one are.
    fn headers(&self, release: &str) {
        let file = format!("lib/modules/{KERNEL}/build/include/generated/utsrelease.h");
        self.0.line(file, &format!("#define UTS_RELEASE \"{release}\""));
    }

    fn run(&self, args: &[&str]) -> Output {
        self.check(args).env("COLUMNS", "10000").output().unwrap()
    }

    fn check(&self, args: &[&str]) -> Command {
        let mut command = command(&["load", "--check", "--root"]);
        command.arg(&self.0).args(args);
        command
    }

    /// Without a terminal the text has 80 columns, and the same words.
    #[track_caller]
    fn fits(&self, args: &[&str], text: &str) {
        let out = self.check(args).env_remove("COLUMNS").output().unwrap();
        let narrow = String::from_utf8(out.stdout).unwrap();
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        assert!(narrow.split_whitespace().eq(text.split_whitespace()), "{narrow}");
    }

    /// The verdict and the ids of the reasons. Checks that exit codes and both formats agree.
    #[track_caller]
    fn judged(&self, args: &[&str]) -> (String, Vec<String>, String) {
        let out = self.run(&[args, &["--json"]].concat());
        let text = self.run(args);
        assert_eq!(out.status.code(), text.status.code());
        assert!(out.stderr.is_empty() && text.stderr.is_empty());
        let json = json(&out);
        let text = String::from_utf8(text.stdout).unwrap();
        self.fits(args, &text);
        assert_eq!(json["schema"], 1);
        let verdict = json["verdict"].as_str().unwrap().to_string();
        let code = if verdict == "cannot" { 77 } else { 0 };
        assert_eq!(out.status.code(), Some(code), "{text}");
        let reasons = json["reasons"].as_array().unwrap();
        for reason in reasons {
            assert!(text.contains(reason["text"].as_str().unwrap()), "{text}");
        }
        if let Some(first) = reasons.first() {
            assert_eq!(first["verdict"], verdict.as_str(), "the reason that decides comes first");
            let first = first["text"].as_str().unwrap();
            let line = if code == 77 { 0 } else { 1 };
            assert!(text.lines().nth(line).unwrap().contains(first), "{text}");
        }
        let id = |reason: &Value| reason["id"].as_str().unwrap().to_string();
        (verdict, reasons.iter().map(id).collect(), text)
    }
}

/// A file, and its contents.
type Change<'c> = (&'c str, &'c [u8]);

/// The host with these files: the verdict, and the ids of the reasons.
#[track_caller]
fn is_judged(changes: &[Change], verdict: &str, reasons: &str) {
    let host = Host::new();
    changes.iter().for_each(|(path, bytes)| host.file(path, bytes));
    let (is, ids, text) = host.judged(&[]);
    assert_eq!((&*is, &*ids.join(" ")), (verdict, reasons), "{text}");
}

#[test]
fn the_worst_reason_is_the_verdict_and_comes_first() {
    let built_in: Change = ("proc/modules", b"ext4 1 0\n");
    let emulated: Change = ("proc/cpuinfo", b"flags : fpu hypervisor\n");
    let realtime: Change = ("sys/kernel/realtime", b"1\n");
    let version: Change = ("proc/sys/kernel/version", b"#1 SMP PREEMPT_RT Debian 6.12.43-1\n");
    let lto: Change = ("lib/modules/6.12.43+deb13-amd64/config", b"# A\nCONFIG_LTO_CLANG=y\n");
    let cfi: Change = ("lib/modules/6.12.43+deb13-amd64/config", b"CONFIG_CFI_CLANG=y\n");
    let boot: Change = ("boot/config-6.12.43+deb13-amd64", b"CONFIG_PREEMPT_RT=y\nCONFIG_CFI=y\n");
    let without: Change =
        ("boot/config-6.12.43+deb13-amd64", b"# CONFIG_CFI is not set\nCONFIG_LTO_NONE=y\n");
    let gap: Change = ("sys/module/kvm_intel/parameters/ple_gap", b"0\n");
    let secure: Change = ("sys/firmware/efi/efivars/SecureBoot-8be4df61", &[6, 0, 0, 0, 1]);
    let no_ftrace: Change = ("proc/sys/kernel/ftrace_enabled", b"0\n");
    let spin_patch: Change = ("sys/kernel/livepatch/kpatch_7/kvm/kvm_vcpu_on_spin,1", b"");
    let turn_patch: Change =
        ("sys/kernel/livepatch/fix_2/vmlinux/xfer_to_guest_mode_handle_work,1", b"");
    let redirected: Change =
        ("sys/kernel/tracing/enabled_functions", b"kvm_vcpu_on_spin (1) R I     tramp\n");
    let unlisted: Change = ("lib/modules/6.12.43+deb13-amd64/modules.dep", b"");
    let disabled: Change = ("proc/sys/kernel/modules_disabled", b"1\n");
    let clang: Change = ("proc/version", b"Linux version 6.12.43 (clang version 19.1.7, LLD 19)\n");
    let clocks = "sys/devices/system/clocksource/clocksource0/available_clocksource";
    let arch = "proc/sys/kernel/arch";
    let loaded: Change =
        ("sys/module/unspin/version", concat!(env!("CARGO_PKG_VERSION"), "\n").as_bytes());
    let latin: Change =
        ("proc/version", b"Linux version 6.12.43 (j\xf6@a) (clang version 19.1.7)\n");
    let cases: [(&[Change], &str, &str); 30] = [
        (&[], "can", "taint"),
        (&[loaded], "can", "loaded"),
        (&[(clocks, b"hpet acpi_pm \n")], "cannot", "tsc taint"),
        (&[(clocks, b"tsc hpet acpi_pm \n")], "can", "taint"),
        (&[(arch, b"aarch64\n"), emulated], "cannot", "architecture taint"),
        (&[(arch, b"x86_64\n")], "can", "taint"),
        (&[latin], "can_with", "clang taint"),
        (&[built_in, ("sys/module/kvm/initstate", b"live\n")], "can", "taint"),
        (&[loaded, redirected], "can", "loaded"),
        (&[loaded, gap], "can_with", "kvm-setting loaded"),
        (&[loaded, emulated], "can_with", "processor loaded"),
        (&[loaded, spin_patch], "can_with", "livepatch loaded livepatch-later"),
        (&[disabled], "cannot", "modules-disabled taint"),
        (&[clang], "can_with", "clang taint"),
        (&[clang, without], "can", "taint"),
        (&[version], "cannot", "realtime taint"),
        (&[lto, boot], "cannot", "lto taint"),
        (&[cfi], "cannot", "cfi taint"),
        (&[boot], "cannot", "realtime cfi taint"),
        (&[without], "can", "taint"),
        (&[unlisted, emulated], "cannot", "processor taint"),
        (&[built_in, emulated], "cannot", "kvm-built-in processor taint"),
        (&[emulated], "cannot", "processor taint"),
        (&[realtime, no_ftrace], "cannot", "realtime ftrace-off taint"),
        (&[gap], "can_with", "kvm-setting taint"),
        (&[secure, no_ftrace], "can_with", "ftrace-off signature taint"),
        (&[spin_patch, gap], "cannot", "livepatch kvm-setting livepatch-later taint"),
        (&[turn_patch], "can_with", "livepatch livepatch-later taint"),
        (&[redirected], "cannot", "redirected taint"),
        (&[("sys/module/unspin/version", b"0.0.9\n")], "can_with", "version"),
    ];
    for (changes, verdict, reasons) in cases {
        is_judged(changes, verdict, reasons);
    }
}

/// What the module needs, in the kernel's configuration and in what the kernel shows.
#[test]
fn what_a_kernel_lacks_is_named() {
    let boot = "boot/config-6.12.43+deb13-amd64";
    let (running, build) = ("proc/config.gz", "lib/modules/6.12.43+deb13-amd64/build/.config");
    let cases: [(&[Change], &str, &str); 14] = [
        (&[(boot, b"CONFIG_X86_64=y\n")], "cannot", "no-modules btf no-ftrace taint"),
        (&[(boot, b"# CONFIG_64BIT is not set\n")], "cannot", "architecture taint"),
        (&[(boot, b"# CONFIG_KVM is not set\n")], "cannot", "no-kvm taint"),
        (&[(boot, b"# CONFIG_VIRTUALIZATION is not set\n")], "cannot", "no-kvm taint"),
        (&[(boot, b"# CONFIG_KVM_INTEL is not set\n")], "cannot", "no-kvm taint"),
        (&[(boot, b"# CONFIG_KVM_AMD is not set\n")], "can", "taint"),
        (&[(boot, b"# CONFIG_MODULES is not set\n")], "cannot", "no-modules taint"),
        (&[(boot, b"CONFIG_KVM=y\n")], "cannot", "kvm-built-in taint"),
        (&[(boot, b"CONFIG_MODULE_SIG_FORCE=y\n")], "can_with", "signature taint"),
        (&[(boot, b"# CONFIG_DEBUG_INFO_BTF is not set\n")], "cannot", "btf taint"),
        (&[(boot, b"# CONFIG_KPROBES is not set\n")], "cannot", "no-ftrace taint"),
        (&[(build, b"CONFIG_CFI=y\n")], "can", "taint"),
        (&[(running, CONFIG_GZ), (boot, b"CONFIG_LTO_NONE=y\n")], "cannot", "cfi lto taint"),
        (&[(running, b"CONFIG_CFI=y\n")], "can", "taint"),
    ];
    for (changes, verdict, reasons) in cases {
        is_judged(changes, verdict, reasons);
    }
}

#[test]
fn a_kernel_without_type_information_of_kvm_is_named() {
    for lacks in ["sys/kernel/btf/kvm", "sys/kernel/btf"] {
        let host = Host::new();
        host.remove(lacks);
        host.file("sys/kernel/x", b"");
        let (verdict, ids, text) = host.judged(&[]);
        assert_eq!((&*verdict, &*ids.join(" ")), ("cannot", "btf taint"), "{lacks}: {text}");
    }
    let host = Host::new();
    host.remove("sys/kernel");
    let (verdict, _, text) = host.judged(&[]);
    assert_eq!(verdict, "can", "a host that does not show it: {text}");
}

/// Every kernel says in its version whether it is PREEMPT_RT, and which compiler built it, whatever its name is.
#[test]
fn a_kernel_that_shows_no_configuration_is_known_by_its_version() {
    let (gcc, clang) = ("(gcc (GCC) 15.1.1)", "(clang version 20.1.8, LLD 20.1.8)");
    for (release, compiler, flags, wanted) in [
        ("6.12.43+deb13-rt-amd64", gcc, "PREEMPT_RT", "cannot realtime"),
        ("6.12.43+deb13-rt-amd64", gcc, "PREEMPT_DYNAMIC", "can taint"),
        ("6.12.43-rt-lto", gcc, "PREEMPT_DYNAMIC", "can taint"),
        ("6.12.43-2-cachyos-lto", clang, "PREEMPT_DYNAMIC", "cannot lto"),
        ("6.12.43-2-cachyos", clang, "PREEMPT_DYNAMIC", "can_with clang"),
    ] {
        let host = Host::new();
        host.kernel(release);
        let list = format!("lib/modules/{release}/modules.dep");
        host.file(&list, b"updates/dkms/unspin.ko: kernel/kvm.ko\n");
        host.0.line("proc/sys/kernel/version", &format!("#1 SMP {flags}"));
        let version = format!("Linux version {release} (a@b) {compiler} #1 SMP {flags}");
        host.0.line("proc/version", &version);
        let (verdict, ids, text) = host.judged(&[]);
        assert_eq!(format!("{verdict} {}", ids[0]), wanted, "{release}: {text}");
        host.file(&format!("boot/config-{release}"), b"# CONFIG_LTO_CLANG is not set\n");
        let (verdict, ids, text) = host.judged(&[]);
        let is_realtime = wanted == "cannot realtime";
        let wanted = if is_realtime { wanted } else { "can taint" };
        assert_eq!(format!("{verdict} {}", ids[0]), wanted, "{release}: {text}");
    }
}

#[test]
fn what_is_no_release_is_no_kernel() {
    for release in ["", "x", "6", "6.8.0 x", "6.8.0-\u{1b}[2J", "6.8.0/../../etc", "6.8.0-$(id)"] {
        let line = format!("{release}\n");
        is_judged(&[("proc/sys/kernel/osrelease", line.as_bytes())], "cannot", "no-release");
    }
    let host = Host::new();
    host.remove("proc/sys/kernel/osrelease");
    let (verdict, ids, text) = host.judged(&[]);
    assert_eq!((&*verdict, &*ids.join(" ")), ("cannot", "no-release"), "{text}");
}

#[test]
fn what_is_not_installed_is_advised_as_the_distribution_has_it() {
    let host = Host::new();
    for (os_release, kernel, words) in [
        ("ID=debian", "6.1.0-40-amd64", "apt-get install linux-headers-6.1.0-40-amd64"),
        ("ID=debian", "6.8.12-4-pve", "apt-get install proxmox-headers-6.8.12-4-pve"),
        (
            "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"",
            "6.12.0-55.9.1.el10_0.x86_64",
            "dnf install kernel-devel-6.12.0-55.9.1.el10_0.x86_64",
        ),
        ("ID=\"void\"", "6.12.9_1", "/lib/modules/6.12.9_1/build/Makefile"),
    ] {
        host.kernel(kernel);
        host.file("etc/os-release", os_release.as_bytes());
        for args in [&[][..], &["--build"]] {
            let (verdict, ids, text) = host.judged(args);
            assert!(verdict != "cannot" && ids.contains(&"not-installed".into()), "{text}");
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}

#[test]
fn what_to_do_about_a_module_that_is_not_installed_depends_on_what_is_there() {
    let host = Host::new();
    host.remove("lib");
    let said = |args: &[&str], words: &str, not: &str| {
        let (verdict, ids, text) = host.judged(args);
        assert_eq!((&*verdict, &*ids.join(" ")), ("can_with", "not-installed taint"), "{text}");
        assert!(text.contains(words) && !text.contains(not), "{text}");
    };
    said(&[], "unspin-dkms and the headers of this kernel (apt-get", "dkms status");
    host.headers("6.1.0");
    said(&["--build"], "belong to kernel 6.1.0, not to 6.12.43+deb13-amd64", "not installed");
    host.headers(KERNEL);
    said(&[], "install the package unspin-dkms, or use `unspin load --build`", "the headers of");
    host.file("var/lib/dkms/unspin/0.1.0/x", b"");
    said(&[], "dkms has not built it: dkms status, /var/lib/dkms/unspin", "install the package");
    for id in ["nixos", "talos", "flatcar", "bottlerocket"] {
        host.file("etc/os-release", format!("ID={id}\n").as_bytes());
        said(&[], "not installed for this kernel", "--build");
    }
    host.file("sys/kernel/security/lockdown", b"none [integrity] confidentiality\n");
    assert_eq!(host.judged(&["--build"]).1.join(" "), "signature taint");
    host.remove("sys/kernel/security");
    let list = format!("run/booted-system/kernel-modules/lib/modules/{KERNEL}/modules.dep");
    host.file(&list, b"extra/unspin.ko.xz:\n");
    assert_eq!(host.judged(&[]).0, "can");
}

#[test]
fn a_module_that_is_no_file_is_wrong_usage() {
    let host = Host::new();
    for file in ["/nonexistent.ko", "/tmp"] {
        let out = host.run(&["--module", file]);
        let said = said(&out);
        assert!(out.status.code() == Some(2) && said.contains(file), "{said}");
    }
}

/// A static `unspin` in a container uses another host's /proc and /sys.
#[test]
fn proc_and_sys_may_lie_elsewhere() {
    let host = Host::new();
    let first = || {
        let mut command = command(&["load", "--check", "--json"]);
        command.env("UNSPIN_PROC", host.0.join("proc")).env("UNSPIN_SYS", host.0.join("sys"));
        let out = command.output().unwrap();
        (json(&out)["reasons"][0].clone(), out.status.code())
    };
    assert_eq!(first().0["id"], "taint", "its own /lib/modules is beside them");
    // What of that host is not seen is unknown: this one may have another distribution.
    std::fs::rename(host.0.join("etc"), host.0.join("hidden")).unwrap();
    std::fs::rename(host.0.join("lib"), host.0.join("hidden/lib")).unwrap();
    let (reason, _) = first();
    assert!(reason["text"].as_str().unwrap().contains("build/Makefile is there"), "{reason}");
    // In a container it is that of the first process.
    let release = "6.12.0-55.9.1.el10_0.x86_64";
    host.kernel(release);
    host.file("proc/1/root/etc/os-release", b"ID=\"rocky\"\nID_LIKE=\"rhel\"\n");
    let (reason, code) = first();
    assert_eq!((&reason["id"], code), (&"not-installed".into(), Some(0)));
    let install = format!("dnf install kernel-devel-{release}");
    assert!(reason["text"].as_str().unwrap().contains(&install), "{reason}");
    host.file("proc/modules", b"");
    let (reason, code) = first();
    assert_eq!((&reason["id"], code), (&"kvm-built-in".into(), Some(77)));
}

/// A script may read only the exit code.
#[test]
fn a_verdict_does_not_depend_on_a_reader() {
    for (is_fit, code) in [(true, 0), (false, 77)] {
        let host = Host::new();
        if !is_fit {
            host.remove("proc/sys/kernel/osrelease");
        }
        for args in [&["--json"][..], &[]] {
            let (reader, writer) = UnixStream::pair().unwrap();
            drop(reader);
            let out = host.check(args).stdout(OwnedFd::from(writer)).output().unwrap();
            let said = said(&out);
            assert!(out.status.code() == Some(code) && said.is_empty(), "{args:?}: {said}");
        }
    }
}

#[test]
fn json_is_of_check_alone() {
    assert_eq!(common::unspin(&["load", "--json"]).status.code(), Some(2));
}
