// SPDX-License-Identifier: MIT OR Apache-2.0
//! What would be set, and which VMs are left alone.

use crate::common::{self, json, said, text};
use crate::fake::Fake;
use serde_json::Value;
use std::fs;

#[test]
fn wrong_usage_is_2() {
    for args in [&["--once"][..], &["--period-ms", "10"], &["--period-ms", "1001"]] {
        common::fails(&[&["shape"], args].concat(), 2, "--");
    }
}

#[test]
fn a_dry_run_says_what_would_be_set_and_changes_nothing() {
    let fake = Fake::new();
    let out = fake.shape(&["web", "--dry-run", "--once", "--json"]).output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    let json = json(&out);
    assert_eq!((&json["schema"], &json["refused"]), (&1.into(), &Value::Array(vec![])));
    let decisions = json["decisions"].as_array().unwrap();
    // Due are 0.5 and 1 of the time, which is 0.75 each. Demands are 1.1 of the first vCPU's part, and the
    // time that the second one used: 0.825 to 0.25.
    for (index, then) in [(0, 153..=154), (1, 46..=47)] {
        let decision = &decisions[index];
        assert_eq!((&decision["vm"], &decision["vcpu"]), (&"web".into(), &index.into()));
        assert_eq!(decision["weight"]["now"], 100);
        // They did not wake up: a kernel with slices keeps them.
        assert_eq!(decision["slice_us"]["now"], decision["slice_us"]["then"], "{decision}");
        assert!(then.contains(&decision["weight"]["then"].as_u64().unwrap()), "{decision}");
        assert!(decision["pcpu"]["now"].is_u64(), "{decision}");
        assert_eq!(decision["pcpu"]["now"], decision["pcpu"]["then"]);
    }
    assert!(decisions[0]["why"].as_str().unwrap().contains("was runnable at the end"), "{json}");
    assert!((json["vms"][0]["cpus"]["before"].as_f64().unwrap() - 0.75).abs() < 0.01, "{json}");
    fake.is_as_before();

    let out = fake.shape(&["--dry-run", "--once"]).output().unwrap();
    let text = text(&out.stdout);
    assert!(text.contains("was idle at the end") && text.contains("gets 0.75 CPUs"), "{text}");
    let missing = fake.shape(&["db", "--dry-run", "--once"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(said(&missing).contains("no VM \"db\""), "{}", said(&missing));
    fake.is_as_before();
    assert!(!fake.dir.join("run").exists(), "a dry run needs no journal");
}

#[test]
fn what_weights_say_nothing_of_is_refused() {
    let fake = Fake::new();
    fake.write(&fake.of_vcpu(1, "cpu.max"), "50000 100000");
    fake.refuses("a quota of 0.5 CPUs");
    fake.write(&fake.of_vcpu(1, "cpu.max"), "max 100000");
    fake.write(&fake.of_vcpu(1, "cpu.idle"), "1");
    fake.refuses("cpu.idle is set");
    fake.write(&fake.of_vcpu(1, "cpu.idle"), "0");
    fake.in_cgroups("3:cpu,cpuacct:");
    fake.refuses("cgroups of version 1");
    fake.in_cgroups("0::");
    for (class, words) in [("1", "vCPU 1 is in a real-time class"), ("5", "SCHED_IDLE")] {
        fake.class(class);
        fake.refuses(words);
    }
    fake.class("0");
    let dry_run = || fake.shape(&["--dry-run", "--once"]).output().unwrap().status.success();
    let set = |file: &str, value: &str| fake.write(&format!("mod/vms/{}-0/{file}", fake.vm), value);
    set("coscheduling", "vcrd-both");
    for (mode, waits) in [("off", "1"), ("observe", "1"), ("hvs", "0")] {
        set("mode", mode);
        set("wait_for_turns", waits);
        assert!(dry_run(), "no turns: mode {mode}, wait_for_turns {waits}");
    }
    set("wait_for_turns", "1");
    fake.refuses("the module gives it turns (coscheduling=vcrd-both)");
    fake.write(&format!("mod/vms/{}-0/coscheduling", fake.vm), "none");
    assert!(fake.shape(&["--dry-run", "--once"]).output().unwrap().status.success());
    fs::remove_dir_all(fake.dir.join(format!("proc/{}/task/{}", fake.vm, fake.vcpus[1]))).unwrap();
    fake.refuses("it has 1 vCPU");
    fs::remove_dir_all(fake.dir.join(format!("proc/{}/task", fake.vm))).unwrap();
    fake.refuses("does not name its vCPU threads");
}

#[test]
fn a_vm_of_any_user_is_shaped_only_by_its_name() {
    let fake = Fake::new();
    let status = fake.dir.join(format!("proc/{}/status", fake.vm));
    fs::remove_file(&status).unwrap();
    fs::write(&status, format!("Tgid:\t{}\nUid:\t1\t4123456\t1\t1\n", fake.vm)).unwrap();
    let all = fake.shape(&["--dry-run", "--once"]).output().unwrap();
    assert_eq!(all.status.code(), Some(77), "{}", said(&all));
    let words =
        format!("belongs to user 4123456; to shape it, name it: unspin shape pid:{}", fake.vm);
    assert!(said(&all).contains(&words), "{}", said(&all));
    assert!(fake.shape(&["web", "--dry-run", "--once"]).output().unwrap().status.success());
    fake.write("etc/passwd", "libvirt-qemu:x:4123456:1::/:");
    assert!(fake.shape(&["--dry-run", "--once"]).output().unwrap().status.success());
}

#[test]
fn where_a_scheduler_in_bpf_ignores_weights_none_are_set() {
    let fake = Fake::new();
    fake.write("sys/kernel/sched_ext/state", "enabled");
    fake.write("sys/kernel/sched_ext/root/ops", "lavd_1.0");
    fake.refuses("the sched_ext scheduler lavd_1.0 is enabled: weights");
    let moves = fake.shape(&["--dry-run", "--once", "--parts", "resolver"]).output().unwrap();
    assert!(moves.status.success(), "{}", said(&moves));
    fake.write("sys/kernel/sched_ext/state", "disabled");
    assert!(fake.shape(&["--dry-run", "--once"]).output().unwrap().status.success());
}

#[test]
fn vcpus_that_are_pinned_stay() {
    let fake = Fake::new();
    let first = std::collections::BTreeSet::from([0]);
    unspin_host::cpus::set_affinity(fake.vcpus[0], &first).unwrap();
    let out =
        fake.shape(&["--dry-run", "--once", "--json", "--parts", "resolver"]).output().unwrap();
    let json = json(&out);
    let why = json["vms"][0]["pinned"].as_str().unwrap();
    assert!(why.contains("its vCPUs are pinned"), "{json}");
    assert_eq!(json["decisions"][0]["pcpu"]["now"], json["decisions"][0]["pcpu"]["then"]);
    assert_eq!(json["decisions"][0]["weight"]["then"], 100, "time is not asked for");
}
