// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin neighbours` on a host made of files.

mod common;

use common::{json, said, text};
use std::process::Command;
use unspin_cli::fake::Fake;

fn neighbours(host: &Fake, args: &[&str]) -> Command {
    let mut command = common::command(&["neighbours", "--seconds", "0.1", "--proc"]);
    command.arg(host.path("proc")).args(args);
    command
}

#[test]
fn vms_are_shown_where_they_compete() {
    let host = Fake::new();
    host.vm("41-0", "web");
    host.0.link("proc/41/fd/8", "anon_inode:kvm-vcpu:0");
    host.write("proc/41/cgroup", "0::/qemu.slice/104.scope");
    for (path, weight) in [("qemu.slice", "100"), ("qemu.slice/104.scope", "250")] {
        host.write(&format!("sys/fs/cgroup/{path}/cpu.weight"), weight);
        let throttled = if path == "qemu.slice" { "" } else { "\nthrottled_usec 0" };
        host.write(&format!("sys/fs/cgroup/{path}/cpu.stat"), &format!("usage_usec 7{throttled}"));
    }
    host.write("sys/fs/cgroup/qemu.slice/104.scope/cpu.max", "150000 100000");
    let out = neighbours(&host, &[]).output().unwrap();
    let text = text(&out.stdout);
    assert!(out.status.success() && text.contains("web (104.scope)"), "{}{text}", said(&out));
    assert!(text.contains("250") && text.contains("1.50"), "{text}");
    let out = neighbours(&host, &["web", "--json"]).output().unwrap();
    let json = json(&out);
    assert_eq!(json["vms"][0]["group"], "/qemu.slice/104.scope");
    assert_eq!(json["vms"][0]["quotas"][0]["remedy"], "qm set 104 --cpulimit CPUS");
    let throttled = |path: &str| {
        let groups = json["groups"].as_array().unwrap();
        let group = groups.iter().find(|group| group["path"] == path);
        group.unwrap_or_else(|| panic!("{path}: {json}"))["throttled_s_per_s"].clone()
    };
    assert!(throttled("/qemu.slice").is_null(), "the kernel does not say: {json}");
    assert_eq!(throttled("/qemu.slice/104.scope"), 0.0);
    let other = neighbours(&host, &["db"]).output().unwrap();
    assert!(other.status.code() == Some(1) && said(&other).contains("no VM \"db\""));
    host.write("proc/41/cgroup", "0::/../elsewhere");
    let hidden = neighbours(&host, &[]).output().unwrap();
    assert_eq!(hidden.status.code(), Some(77), "{}", said(&hidden));
    assert!(said(&hidden).contains("/../elsewhere is not in the tree"), "{}", said(&hidden));
}

#[test]
fn what_was_watched_until_ctrl_c_is_shown() {
    let host = Fake::new();
    host.vm("41-0", "web");
    host.0.link("proc/41/fd/8", "anon_inode:kvm-vcpu:0");
    host.write("proc/41/cgroup", "0::/vm");
    host.write("sys/fs/cgroup/vm/cpu.weight", "100");
    let proc = host.0.text("proc");
    let args = ["neighbours", "--json", "--seconds", "3600", "--proc", &proc];
    let json = common::interrupted(&args);
    let vm = &json["vms"][0];
    assert_eq!((&vm["name"], &vm["ended"]), (&"web".into(), &false.into()));
    assert!(json["window_s"].as_f64().unwrap() < 60.0, "{json}");
}

#[test]
fn wrong_usage_is_2_and_a_host_without_vms_is_1() {
    common::fails(&["neighbours", "--seconds", "0"], 2, "--seconds");
    common::fails(&["neighbours", "--proc", "/proc/self/task"], 1, "no VM runs on this host");
}
