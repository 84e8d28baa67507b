// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin diagnose` without VMs: its refusals.

mod common;

use std::os::unix::fs::MetadataExt;
use unspin_scratch::Scratch;

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

/// A host without processes has no VM, regardless of its other files.
#[test]
fn a_host_without_vms_is_said_to_be_one() {
    let empty = Scratch::new();
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
}

fn diagnosed(args: &[&str]) -> String {
    let out = common::unspin(&[&["diagnose"], args].concat());
    assert!(out.status.success(), "{}", common::said(&out));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn many_vms_have_a_line_each_the_worst_first() {
    let many = ["--synthetic", "62x2", "--seconds", "0.1"];
    let text = diagnosed(&many);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("VM ") && lines[1].starts_with("hpc"), "{text}");
    assert_eq!(lines[1..63].iter().filter(|line| !line.is_empty()).count(), 62, "{text}");
    assert!(lines.len() < 70 && lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    // Everything about each VM, if requested, and about a named one.
    let details = diagnosed(&[&many[..], &["--details"]].concat());
    assert!(details.contains("\nweb2 (process 106000): 2 vCPUs"), "{details}");
    let web = diagnosed(&[&many[..], &["web2"]].concat());
    assert!(web.starts_with("web2 (process 106000): 2 vCPUs"), "{web}");
    for words in
        ["%RDY 56.0, %CSTP 21.9, %MLMTD 3.5", "db2 83.3 %, stress-ng (process 4242) 16.7 %"]
    {
        assert!(web.replace('\n', " ").contains(words), "{words}: {web}");
    }
    assert!(web.lines().all(|line| line.chars().count() <= 80), "{web}");
}

/// The guest's accesses, and how many vCPUs it needs; null if unknown.
#[test]
fn an_idle_vm_has_a_cost() {
    let both = ["--synthetic", "6x2", "--seconds", "0.1"];
    let of = |vm: &str| -> serde_json::Value {
        let json = diagnosed(&[&both[..], &[vm, "--json"]].concat());
        serde_json::from_str::<serde_json::Value>(&json).unwrap()["vms"][0].clone()
    };
    let calm = of("pid:105000");
    let clock = &calm["accesses"][0];
    assert_eq!((&clock["kind"], &clock["first"]), (&"port".into(), &0x71.into()), "{calm}");
    assert_eq!(clock["device"], "real-time clock (RTC)");
    assert_eq!((&clock["to_vmm"], calm["right_size"].is_null()), (&clock["exits"], true));
    assert!((calm["cpus"]["monitor"].as_f64().unwrap() - 0.001).abs() < 1e-4, "{calm}");
    let wanted = calm["wanting_s"].as_array().unwrap();
    assert!(wanted.len() == 2 && wanted[0].as_f64() > wanted[1].as_f64(), "{calm}");
    let web = of("web1");
    for key in ["accesses", "wanting_s", "right_size"] {
        assert!(web[key].is_null(), "{key}: {web}");
    }
    assert!(web["cpus"]["monitor"].is_null() && web["cpus"]["guest"].is_number(), "{web}");
    let text = diagnosed(&[&both[..], &["pid:105000"]].concat()).replace('\n', " ");
    for words in ["port 0x71: real-time clock (RTC): ", "served by the VMM", "CPUs busy"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn what_was_watched_until_ctrl_c_is_reported() {
    let args = ["diagnose", "--synthetic", "1x2", "--seconds", "3600", "--json"];
    let json = common::interrupted(&args);
    assert_eq!(json["vms"][0]["name"], "web1");
    assert!(json["vms"][0]["window_s"].as_f64().unwrap() > 0.0);
}
