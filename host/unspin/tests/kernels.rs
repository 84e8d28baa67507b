// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands on other kernels, whose /proc and /sys are in directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Another host in a directory, which is removed when dropped.
struct Other(PathBuf);

impl Other {
    fn new(name: &str, release: &str) -> Other {
        let dir = std::env::temp_dir().join(format!("unspin-other-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let other = Other(dir);
        other.file("proc/sys/kernel/osrelease", format!("{release}\n").as_bytes());
        other.file("proc/cpuinfo", b"flags : vmx\nvmx flags : ple\n");
        fs::create_dir_all(other.0.join("sys")).unwrap();
        other
    }

    fn file(&self, path: &str, bytes: &[u8]) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn unspin(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
        command.args(args).stdin(Stdio::null());
        command.env("UNSPIN_PROC", self.0.join("proc")).env("UNSPIN_SYS", self.0.join("sys"));
        command.output().unwrap()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_host_in_directories_is_seen_by_the_environment() {
    let other = Other::new("seen", "6.8.0-31-generic");
    let module = Path::new("sys/module/unspin");
    for (file, text) in [("version", "0.1.0\n"), ("default/mode", "apples\n")] {
        other.file(module.join(file).to_str().unwrap(), text.as_bytes());
    }
    other.file("sys/module/unspin/vms/41-0/mode", b"hvs\n");
    other.file("proc/41/status", b"Tgid:\t41\n");
    other.file("proc/41/cmdline", b"/usr/bin/qemu-system-x86_64\0-name\0web\0");
    fs::create_dir_all(other.0.join("proc/41/fd")).unwrap();
    std::os::unix::fs::symlink("anon_inode:kvm-vm", other.0.join("proc/41/fd/9")).unwrap();
    let out = other.unspin(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(status["vms"]["41-0"]["mode"], "hvs", "{status}");
    assert_eq!(status["vms"]["41-0"]["name"], "web", "{status}");
}

#[test]
fn what_loading_meets_is_of_that_kernel() {
    let other = Other::new("check", "5.15.0-91-generic");
    let out = other.unspin(&["load", "--check"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("5.15.0-91-generic"), "{said}");
}

/// Empty type information: a header without types, and the empty text.
const NO_TYPES: &[u8] = b"\x9f\xeb\x01\x00\x18\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0";

/// It refuses before it loads anything, also without root.
#[test]
fn monitors_end_with_the_reason_on_a_kernel_they_do_not_fit() {
    let other = Other::new("misfit", "9.1.0-1-generic");
    for module in ["module/kvm", "module/kvm_intel", "fs/cgroup"] {
        fs::create_dir_all(other.0.join("sys").join(module)).unwrap();
    }
    for file in ["vmlinux", "kvm", "kvm_intel"] {
        other.file(&format!("sys/kernel/btf/{file}"), NO_TYPES);
    }
    for args in [
        &["diagnose"][..],
        &["diagnose", "--json"],
        &["top", "--once"],
        &["top", "--once", "--json"],
        &["export", "--listen", "127.0.0.1:0"],
    ] {
        let out = other.unspin(args);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(77), "{args:?}: {said}");
        for word in ["9.1.0-1-generic", "there is no tracepoint kvm_exit", "field __state or state"]
        {
            assert!(said.contains(word), "{args:?}: {said}");
        }
    }
    let out = other.unspin(&["load", "--check"]);
    let said = words(&out.stdout);
    assert!(said.contains("there is no tracepoint kvm_exit"), "{said}");
    fs::remove_file(other.0.join("sys/kernel/btf/kvm")).unwrap();
    fs::remove_file(other.0.join("sys/kernel/btf/kvm_intel")).unwrap();
    let out = other.unspin(&["load", "--check", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["monitors"]["fit"], false, "{json}");
    let why = json["monitors"]["why"][0].as_str().unwrap();
    assert!(why.contains("no type information of the module kvm"), "{json}");
}

/// A text as one line, without its line breaks.
fn words(text: &[u8]) -> String {
    String::from_utf8_lossy(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_kernel_that_is_too_old_is_named_before_anything_is_built() {
    for release in ["4.18.0-553.el8.x86_64", "5.14.0-503.el9.x86_64", "5.15.0-91-generic"] {
        let other = Other::new("old", release);
        let why = format!("kernel {release} is too old for the module");
        for args in [&["load", "--check"][..], &["load"], &["load", "--build"]] {
            let out = other.unspin(args);
            let said = words(&[out.stdout, out.stderr].concat());
            assert!(said.contains(&why), "{args:?}: {said}");
            assert_eq!(out.status.code(), Some(77), "{args:?}: {said}");
        }
    }
}
