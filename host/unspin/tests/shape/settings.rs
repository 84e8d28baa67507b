// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is set while VMs are shaped.

use crate::common::vm_host::{allowed, comes_to, ends_well, signal, started};
use crate::common::{said, text};
use crate::fake::{nice_of, Fake, SCOPE};
use std::fs;
use std::process::Command;
use unspin_scratch::Killed;

#[test]
fn without_a_cgroup_each_they_get_nice_values() {
    let fake = Fake::new();
    fake.write(&fake.of_vcpu(0, "cgroup.threads"), &format!("{}\n{}", fake.vcpus[0], fake.vm));
    let own = nice_of(&fake);
    let child = started(fake.shape(&[]), || nice_of(&fake)[1] > own[1]);
    assert!(fake.journal().contains("\"nice\"") && nice_of(&fake)[0] < own[0]);
    let text = text(&ends_well(child, libc::SIGTERM).stdout);
    assert!(text.contains("(set as nice values of the vCPUs)"), "{text}");
    assert_eq!(nice_of(&fake), own);
    fake.is_as_before();
}

/// swtpm is beside QEMU, as with Proxmox: the scope is the VM's own, and its weight is corrected.
#[test]
fn a_helper_beside_the_monitor_is_the_vms() {
    let fake = Fake::new();
    for tid in fake.vcpus {
        fake.write(&format!("proc/{tid}/cgroup"), "0::/qemu.slice/100.scope");
    }
    let both = format!("{}\n2002", fake.vm);
    fake.write("sys/fs/cgroup/qemu.slice/100.scope/cgroup.procs", &both);
    fake.write("sys/fs/cgroup/qemu.slice/100.scope/cgroup.threads", &both);
    fake.write("sys/fs/cgroup/qemu.slice/100.scope/cpu.weight", "100");
    fake.write("proc/2002/cgroup", "0::/qemu.slice/100.scope");
    let weight = || fake.read("sys/fs/cgroup/qemu.slice/100.scope/cpu.weight");
    let own = nice_of(&fake);
    let child = started(fake.shape(&["web"]), || weight() != "100");
    assert!(nice_of(&fake)[1] > own[1], "its siblings divide it: not all are raised");
    ends_well(child, libc::SIGTERM);
    assert_eq!((weight().as_str(), nice_of(&fake)), ("100", own));
}

/// The scheduler then sees the parent's cgroup, which has another VM; that VM keeps its weight.
#[test]
fn without_the_controller_neighbours_are_those_of_the_parent() {
    let fake = Fake::new();
    for tid in fake.vcpus {
        fake.write(&format!("proc/{tid}/cgroup"), "0::/system.slice/vm1.service");
    }
    fake.write("sys/fs/cgroup/system.slice/cpu.weight", "100");
    fake.write("sys/fs/cgroup/system.slice/vm1.service/cgroup.procs", &fake.vm.to_string());
    fake.write("sys/fs/cgroup/system.slice/vm2.service/cgroup.procs", "4000001");
    fake.holds_vm(4_000_001, "db");
    fake.write("proc/4000001/status", "Tgid:\t4000001");
    fake.write("proc/4000001/cgroup", "0::/system.slice/vm2.service");
    let own = nice_of(&fake);
    let child = started(fake.shape(&["web"]), || nice_of(&fake)[0] < own[0]);
    assert_eq!(fake.read("sys/fs/cgroup/system.slice/cpu.weight"), "100");
    let out = ends_well(child, libc::SIGTERM);
    assert!(!said(&out).contains("left alone"), "{}", said(&out));
    assert_eq!(nice_of(&fake), own);
    assert_eq!(fake.journal(), "");
}

#[test]
fn the_resolver_gives_siblings_a_cpu_each_and_back() {
    let fake = Fake::new();
    let before = fake.vcpus.map(allowed);
    if !before[0].contains(['-', ',']) {
        eprintln!("SKIPPED: this computer has one CPU");
        return;
    }
    let parts = ["--parts", "time,latency,resolver"];
    let now = || fake.vcpus.map(allowed);
    let child =
        started(fake.shape(&parts), || now().iter().all(|cpus| cpus.parse::<u32>().is_ok()));
    assert_ne!(now()[0], now()[1]);
    ends_well(child, libc::SIGTERM);
    assert_eq!(now(), before);
    fake.is_as_before();
}

#[test]
fn after_a_round_the_weights_are_its_own_again_for_a_while() {
    let fake = Fake::new();
    let mut child = fake.shapes();
    let is_back = || fake.weights() == ["100", "100", "100"] && fake.journal().is_empty();
    comes_to("its weights do not come back", is_back);
    assert!(child.try_wait().unwrap().is_none());
    let text = text(&ends_well(child, libc::SIGTERM).stdout);
    assert!(text.contains("gets 0.75 CPUs of 1.25 due"), "{text}");
    assert!(text.contains("weight of the VM 400; weights of vCPUs 1"), "{text}");
    fake.is_as_before();
}

/// The last of the VM's three vCPUs is removed while they are shaped, and then added again.
#[test]
fn vcpus_come_and_go() {
    let fake = Fake::new();
    let third = Killed(Command::new("sleep").arg("600").spawn().unwrap());
    let tid = third.0.id();
    let plugs = || {
        for file in ["status", "stat"] {
            fake.links(tid, file);
        }
        fake.write(&fake.of_vcpu(2, "cpu.weight"), "100");
        fake.write(&fake.of_vcpu(2, "cgroup.threads"), &tid.to_string());
        fake.write(&format!("proc/{tid}/cgroup"), &format!("0::/{SCOPE}/libvirt/vcpu2"));
        fake.write(&format!("proc/{}/task/{tid}/comm", fake.vm), "CPU 2/KVM");
    };
    let is_set = |index| fake.read(&fake.of_vcpu(index, "cpu.weight")) != "100";
    plugs();
    let child = started(fake.shape_at("0.5r,0.25,0.01"), || is_set(2));
    fs::remove_dir_all(fake.dir.join(format!("proc/{}/task/{tid}", fake.vm))).unwrap();
    fs::remove_dir_all(fake.dir.join(format!("proc/{tid}"))).unwrap();
    fs::remove_dir_all(fake.dir.join(format!("sys/fs/cgroup/{SCOPE}/libvirt/vcpu2"))).unwrap();
    comes_to("the two that are left are not put back", || fake.weights()[..2] == ["100", "100"]);
    comes_to("the two that are left are not shaped", || is_set(0) && is_set(1));
    assert!(!fake.journal().contains("vcpu2"));
    plugs();
    comes_to("a vCPU that was added is not shaped", || is_set(2));
    ends_well(child, libc::SIGTERM);
    assert!(!is_set(2));
    fake.is_as_before();
}

#[test]
fn status_shows_what_is_shaped() {
    let fake = Fake::new();
    let child = fake.shapes();
    let shaped = fake.dir.join("run/shape.json");
    comes_to("nothing is written down", || shaped.exists());
    let status = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
        command.arg("status").args(more).arg("--shaped").arg(&shaped);
        command.arg("--sysfs").arg(fake.dir.join("no-module")).output().unwrap()
    };
    let out = status(&[]);
    let text = text(&out.stdout);
    assert!(out.status.success(), "{}", said(&out));
    assert!(text.contains(&format!("unspin shape (process {}):", child.id())), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("was runnable at the end; next "), "{text}");
    assert!(words.contains("web (process "), "{text}");
    signal(child.id(), libc::SIGTERM);
    child.wait_with_output().unwrap();
    assert!(!shaped.exists());
    assert_eq!(status(&[]).status.code(), Some(77), "no module, and nobody is shaped");
}

#[test]
fn it_waits_for_a_vm_where_there_is_none() {
    let fake = Fake::new();
    let vm = fake.dir.join(format!("proc/{}", fake.vm));
    let away = fake.dir.join("away");
    fs::rename(&vm, &away).unwrap();
    let child = started(fake.shape(&["--wait"]), || true);
    std::thread::sleep(std::time::Duration::from_millis(300));
    fs::rename(&away, &vm).unwrap();
    comes_to("the VM that came is not shaped", || fake.weights()[1] != "100");
    ends_well(child, libc::SIGTERM);
    fake.is_as_before();
}
