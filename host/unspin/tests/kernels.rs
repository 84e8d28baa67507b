// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands on other kernels, whose /proc and /sys are in directories.

mod common;

use common::{json, said};
use std::fs;
use std::process::Output;
use unspin_scratch::Scratch;

struct Other(Scratch);

impl Other {
    fn new(release: &str) -> Other {
        let other = Other(Scratch::new());
        other.0.line("proc/sys/kernel/osrelease", release);
        other.0.write("proc/cpuinfo", "flags : vmx\nvmx flags : ple\n");
        other.0.dir("sys");
        other
    }

    fn unspin(&self, args: &[&str]) -> Output {
        let mut command = common::command(args);
        command.env("UNSPIN_PROC", self.0.join("proc")).env("UNSPIN_SYS", self.0.join("sys"));
        command.output().unwrap()
    }
}

#[test]
fn a_host_in_directories_is_seen_by_the_environment() {
    let other = Other::new("6.8.0-31-generic");
    for (file, text) in [("version", "0.1.0"), ("default/mode", "apples"), ("vms/41-0/mode", "hvs")]
    {
        other.0.line(format!("sys/module/unspin/{file}"), text);
    }
    other.0.vm(41, &["/usr/bin/qemu-system-x86_64", "-name", "web"]);
    let status = json(&other.unspin(&["status", "--json"]));
    assert_eq!(status["vms"]["41-0"]["mode"], "hvs", "{status}");
    assert_eq!(status["vms"]["41-0"]["name"], "web", "{status}");
}

/// Empty type information: a header without types, and the empty text.
const NO_TYPES: &[u8] = b"\x9f\xeb\x01\x00\x18\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0";

/// It refuses before it loads anything, also without root.
#[test]
fn monitors_end_with_the_reason_on_a_kernel_they_do_not_fit() {
    let other = Other::new("9.1.0-1-generic");
    for module in ["module/kvm", "module/kvm_intel", "fs/cgroup"] {
        fs::create_dir_all(other.0.join("sys").join(module)).unwrap();
    }
    for file in ["vmlinux", "kvm", "kvm_intel"] {
        other.0.write(format!("sys/kernel/btf/{file}"), NO_TYPES);
    }
    for args in [
        &["diagnose"][..],
        &["diagnose", "--json"],
        &["top", "--once"],
        &["top", "--once", "--json"],
        &["export", "--listen", "127.0.0.1:0"],
    ] {
        let out = other.unspin(args);
        let said = said(&out);
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
    let json = json(&other.unspin(&["load", "--check", "--json"]));
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
        let other = Other::new(release);
        let why = format!("kernel {release} is too old for the module");
        for args in [&["load", "--check"][..], &["load"], &["load", "--build"]] {
            let out = other.unspin(args);
            let said = words(&[out.stdout, out.stderr].concat());
            assert!(said.contains(&why), "{args:?}: {said}");
            assert_eq!(out.status.code(), Some(77), "{args:?}: {said}");
        }
    }
}
