// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which VM a command selects, and that every VM is shown, on hosts made of files.

mod common;

use common::{json, said, text};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use unspin_scratch::Scratch;

struct Other(Scratch);

impl Other {
    fn new() -> Other {
        let dir = Scratch::new();
        dir.dir("proc");
        Other(dir)
    }

    /// A VM of Proxmox VE whose threads have no names. Process ids are above those of this
    /// computer.
    fn vm(&self, pid: u32, vmid: u32, name: &str, vcpus: u32) {
        let id = vmid.to_string();
        self.0.vm(pid, &["/usr/bin/kvm", "-id", &id, "-name", name]);
        for vcpu in 0..vcpus {
            let fd = format!("proc/{pid}/fd/{}", 20 + vcpu);
            self.0.link(fd, &format!("anon_inode:kvm-vcpu:{vcpu}"));
        }
        for tid in pid..=pid + vcpus {
            self.0.line(format!("proc/{pid}/task/{tid}/comm"), "kvm");
        }
        self.0.line(format!("proc/{pid}/cgroup"), &format!("0::/qemu.slice/{vmid}.scope"));
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = common::command(args);
        command.env("UNSPIN_PROC", self.0.join("proc"));
        command
    }

    fn unspin(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }
}

/// The command in a place that every user may reach; removed when it is dropped.
struct Program(std::path::PathBuf);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// What `neighbours` says to a user who may not look into a process, or does not see it: a VM is there, is
/// named, or may be missing.
#[test]
fn a_user_who_may_not_look_is_told_that_vms_may_be_missing() {
    // SAFETY: it takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: needs root, to become another user");
        return;
    }
    let program = Program(std::env::temp_dir().join(format!("unspin-who-{}", std::process::id())));
    fs::copy(env!("CARGO_BIN_EXE_unspin"), &program.0).unwrap();
    let host = Other::new();
    for (at, (args, thread)) in [
        (&["/usr/bin/kvm", "-name", "web"][..], "CPU 0/KVM"),
        (&["/usr/bin/kvm", "-name", "plain"], "kvm"),
        (&["/opt/vmm"], "vcpu_0"),
    ]
    .iter()
    .enumerate()
    {
        let pid = PID + 10 * at as u32;
        host.0.vm(pid, args);
        host.0.link(format!("proc/{pid}/fd/8"), "anon_inode:kvm-vcpu:0");
        host.0.line(format!("proc/{pid}/task/{}/comm", pid + 1), thread);
        host.0.line(format!("proc/{pid}/cgroup"), "0::/vms");
        host.0.line(format!("proc/{}/cgroup", pid + 1), "0::/vms");
    }
    host.0.line("proc/1/cgroup", "0::/init.scope");
    host.0.write("proc/1/cmdline", "init\0");
    host.0.line("sys/fs/cgroup/vms/cpu.weight", "100");
    let modes = |path: &str, mode: u32| {
        for pid in [PID, PID + 10, PID + 20] {
            let path = host.0.join(format!("proc/{pid}{path}"));
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
    };
    let neighbours = |words: &[&str]| {
        let mut command = Command::new(&program.0);
        command.args(["neighbours", "--seconds", "0.1"]).uid(65534).gid(65534);
        let out = command.env("UNSPIN_PROC", host.0.join("proc")).output().unwrap();
        let said = text(&out.stderr) + &text(&out.stdout);
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
        (out.status.code(), said)
    };
    let (code, said) = neighbours(&["web", "plain"]);
    assert!(code == Some(0) && !said.contains("missing"), "{said}");
    modes("/fd", 0o700);
    let missing = "VMs may be missing: this user may not look into 3 processes";
    let named = "3 processes, among them 5000010 (QEMU); it takes root";
    assert_eq!(neighbours(&["web", missing, named]).0, Some(0));
    // hidepid=1 shows directories without contents, and hidepid=2 none.
    modes("", 0o700);
    assert_eq!(neighbours(&[missing, "no VM runs on this host"]).0, Some(1));
    fs::remove_dir_all(host.0.join("proc")).unwrap();
    host.0.dir("proc");
    assert_eq!(neighbours(&["VMs may be missing", "(hidepid); it takes root"]).0, Some(1));
}

const PID: u32 = 5_000_000;

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
    let host = Other::new();
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
    let host = Other::new();
    host.vm(PID, 104, "web", 2);
    host.vm(PID + 10, 105, "web", 3);
    let all = json(&host.unspin(&["top", "--once", "--json", "--delay", "0.1"]));
    let vms = all["vms"].as_array().unwrap();
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
        assert_eq!(json(&out)["vms"][0]["names"]["vmid"], "105", "{given}: {}", said(&out));
    }
    let out = host.unspin(&["diagnose", "5000010", "--seconds", "0.1"]);
    assert!(text(&out.stderr).contains("write pid:5000010"), "{}", text(&out.stderr));
    let plain = Other::new();
    plain.0.vm(PID, &["/usr/bin/kvm", "-name", "web"]);
    plain.0.link(format!("proc/{PID}/fd/20"), "anon_inode:kvm-vcpu:0");
    let out = plain.unspin(&["diagnose", "5000000", "--seconds", "0.1"]);
    let said = text(&out.stderr);
    assert_eq!(said.matches("is taken as a process id").count(), 1, "{said}");
}

/// In the table if it came before the first look, otherwise in a message.
#[test]
fn a_vm_that_starts_meanwhile_is_told() {
    if !can_watch() {
        return;
    }
    let host = Other::new();
    host.vm(PID, 104, "web", 1);
    let mut top = host.command(&["top", "--once", "--delay", "4"]);
    let top = top.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    host.vm(PID + 10, 105, "late", 1);
    let out = top.wait_with_output().unwrap();
    let said = text(&out.stdout) + &text(&out.stderr);
    assert!(out.status.success() && said.contains("web") && said.contains("late"), "{said}");
}

#[test]
fn one_of_very_many_vms_is_diagnosed() {
    if !can_watch() {
        return;
    }
    let host = Other::new();
    (0..2100).for_each(|vm| host.vm(PID + 10 * vm, 100 + vm, &format!("web{vm}"), 1));
    let out = host.unspin(&["diagnose", "web2099", "--json", "--seconds", "0.1"]);
    let said = text(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert!(said.contains("52 of 2100 VMs are not watched"), "{said}");
    assert_eq!(json(&out)["vms"][0]["name"], "web2099");
    let said = text(&host.unspin(&["diagnose", "wbe2099"]).stderr);
    assert!(
        said.contains("the nearest of 2100 VMs: ") && said.contains("5020990 (web2099)"),
        "{said}"
    );
}
