// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin diagnose` where there is no VM: what it refuses.

mod common;

use std::os::unix::fs::MetadataExt;

#[track_caller]
fn fails(args: &[&str], code: i32, words: &str) {
    common::fails(&[&["diagnose"], args].concat(), code, words);
}

#[test]
fn wrong_usage_is_2() {
    for wrong in ["0", "1e9", "five"] {
        fails(&["--seconds", wrong], 2, "--seconds");
    }
    fails(&["one", "two"], 2, "unexpected argument 'two'");
}

/// A host without processes has no VM, whatever else it has.
#[test]
fn a_host_without_vms_is_said_to_be_one() {
    let empty = std::env::temp_dir().join(format!("unspin-diagnose-{}", std::process::id()));
    std::fs::create_dir_all(&empty).unwrap();
    let proc = ["--proc", empty.to_str().unwrap()];
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        fails(&proc, 77, "only root may watch vCPUs");
    } else if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        fails(&proc, 77, "/sys/kernel/btf/vmlinux is missing");
    } else if !std::path::Path::new("/sys/module/kvm").exists() {
        fails(&proc, 77, "modprobe kvm_intel");
    } else {
        fails(&proc, 1, "no VM runs on this host");
        fails(&["web", proc[0], proc[1]], 1, "no VM \"web\"; VMs: none");
    }
    std::fs::remove_dir_all(&empty).unwrap();
}
