// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which VM a command selects, and that every VM is shown, on hosts made of files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A host in a directory, which is removed when dropped.
struct Other(PathBuf);

impl Other {
    fn new(name: &str) -> Other {
        let dir = std::env::temp_dir().join(format!("unspin-who-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("proc")).unwrap();
        Other(dir)
    }

    /// A VM of Proxmox VE whose threads have no names. Process ids are above those of this
    /// computer.
    fn vm(&self, pid: u32, vmid: u32, name: &str, vcpus: u32) {
        let proc = self.0.join(format!("proc/{pid}"));
        fs::create_dir_all(proc.join("fd")).unwrap();
        symlink("anon_inode:kvm-vm", proc.join("fd/9")).unwrap();
        for vcpu in 0..vcpus {
            let fd = proc.join(format!("fd/{}", 20 + vcpu));
            symlink(format!("anon_inode:kvm-vcpu:{vcpu}"), fd).unwrap();
        }
        for tid in pid..=pid + vcpus {
            let task = proc.join(format!("task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("comm"), "kvm\n").unwrap();
        }
        let line = format!("/usr/bin/kvm\0-id\0{vmid}\0-name\0{name}\0");
        fs::write(proc.join("cmdline"), line).unwrap();
        fs::write(proc.join("cgroup"), format!("0::/qemu.slice/{vmid}.scope\n")).unwrap();
        fs::write(proc.join("status"), format!("Tgid:\t{pid}\n")).unwrap();
    }

    fn unspin(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
        command.args(args).stdin(Stdio::null()).env("UNSPIN_PROC", self.0.join("proc"));
        command.output().unwrap()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const PID: u32 = 5_000_000;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether vCPUs can be watched here.
fn can_watch() -> bool {
    // SAFETY: it takes nothing.
    let is_root = unsafe { libc::geteuid() } == 0;
    let can = is_root
        && Path::new("/sys/kernel/btf/vmlinux").exists()
        && Path::new("/sys/module/kvm").exists();
    if !can {
        println!("SKIPPED: needs root, KVM and the kernel's type information");
    }
    can
}

#[test]
fn names_that_fit_several_vms_are_refused_with_what_tells_them_apart() {
    let host = Other::new("several");
    host.vm(PID, 104, "web", 1);
    host.vm(PID + 10, 105, "web", 1);
    host.vm(PID + 20, PID + 10, "db", 1);
    for (given, words) in [
        ("web", "\"web\" names several VMs: 5000000 (web, vmid:104), 5000010 (web, vmid:105)"),
        ("5000010", "write vmid:5000010 for the VM of that name, pid:5000010 for the process"),
    ] {
        let out = host.unspin(&["diagnose", given]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn whatever_is_shown_is_taken_and_every_vm_is_shown() {
    if !can_watch() {
        return;
    }
    let host = Other::new("shown");
    host.vm(PID, 104, "web", 2);
    host.vm(PID + 10, 105, "web", 3);
    let all = host.unspin(&["top", "--once", "--json", "--delay", "0.1"]);
    let json: serde_json::Value = serde_json::from_slice(&all.stdout).unwrap();
    let vms = json["vms"].as_array().unwrap();
    assert_eq!(vms.iter().map(|vm| vm["vcpus"].as_u64()).collect::<Vec<_>>(), [Some(2), Some(3)]);
    assert_eq!(vms[0]["names"], serde_json::json!({"name": "web", "vmid": "104"}));
    assert!(vms[0]["causes"].as_array().unwrap().iter().all(|cause| cause["share"].is_null()));
    let table = text(&host.unspin(&["top", "--once", "--delay", "0.1"]).stdout);
    for shown in ["web (vmid:104)", "web (vmid:105)"] {
        assert!(table.contains(shown), "{table}");
        let out = host.unspin(&["diagnose", shown, "--seconds", "0.1"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        assert!(text(&out.stdout).contains(shown), "{}", text(&out.stdout));
    }
    for given in ["process 5000010", "web (process 5000010)", "pid:5000010", "105", "vmid:105"] {
        let out = host.unspin(&["diagnose", given, "--json", "--seconds", "0.1"]);
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(json["vms"][0]["names"]["vmid"], "105", "{given}: {}", text(&out.stderr));
    }
    let out = host.unspin(&["diagnose", "5000010", "--seconds", "0.1"]);
    assert!(text(&out.stderr).contains("write pid:5000010"), "{}", text(&out.stderr));
}

#[test]
fn one_of_very_many_vms_is_diagnosed() {
    if !can_watch() {
        return;
    }
    let host = Other::new("many");
    (0..600).for_each(|vm| host.vm(PID + 10 * vm, 100 + vm, &format!("web{vm}"), 1));
    let out = host.unspin(&["diagnose", "web599", "--json", "--seconds", "0.1"]);
    let said = text(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert!(said.contains("88 of 600 VMs are not watched"), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["vms"][0]["name"], "web599");
    let said = text(&host.unspin(&["diagnose", "wbe599"]).stderr);
    assert!(
        said.contains("the nearest of 600 VMs: ") && said.contains("5005990 (web599)"),
        "{said}"
    );
}
