// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin shape` on a host made of files, whose vCPUs are real threads that sleep: its decisions,
//! settings and refusals, and that it restores everything, for any end.

mod common;

use common::vm_host::{
    allowed, comes_to, ends_well, fails, guard_if_any, guard_of, signal, started, VmHost,
};
use common::{json, said, text};
use serde_json::Value;
use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, Command};
use unspin_scratch::Killed;

const SCOPE: &str = r"machine.slice/machine-qemu\x2d1\x2dweb.scope";
/// The first vCPU was runnable at the end, the second was idle.
const PACES: &str = "0.5r,0.25";

/// A host with one VM of two vCPUs, in cgroups as libvirt creates them.
struct Fake(VmHost);

impl Deref for Fake {
    type Target = VmHost;

    fn deref(&self) -> &VmHost {
        &self.0
    }
}

impl Fake {
    fn new() -> Fake {
        let fake = Fake(VmHost::new());
        for (index, tid) in fake.vcpus.iter().enumerate() {
            fake.write(&fake.of_vcpu(index, "cpu.weight"), "100");
            fake.write(&fake.of_vcpu(index, "cgroup.threads"), &tid.to_string());
        }
        fake.in_cgroups("0::");
        fake.write(&format!("sys/fs/cgroup/{SCOPE}/cpu.weight"), "100");
        fake
    }

    /// A file of a vCPU's cgroup.
    fn of_vcpu(&self, index: usize, file: &str) -> String {
        format!("sys/fs/cgroup/{SCOPE}/libvirt/vcpu{index}/{file}")
    }

    /// Sets the prefix of the vCPUs' `/proc/TID/cgroup`.
    fn in_cgroups(&self, hierarchy: &str) {
        for (index, tid) in self.vcpus.iter().enumerate() {
            let text = format!("{hierarchy}/{SCOPE}/libvirt/vcpu{index}");
            self.write(&format!("proc/{tid}/cgroup"), &text);
        }
    }

    /// Sets the scheduling class of the second vCPU (field 41 of stat).
    fn class(&self, number: &str) {
        let path = format!("proc/{}/stat", self.vcpus[1]);
        let text = fs::read_to_string(format!("/{path}")).unwrap();
        let (name, fields) = text.rsplit_once(") ").unwrap();
        let mut fields: Vec<&str> = fields.split_whitespace().collect();
        fields[41 - 3] = number;
        fs::remove_file(self.dir.join(&path)).unwrap();
        self.write(&path, &format!("{name}) {}", fields.join(" ")));
    }

    fn weights(&self) -> Vec<String> {
        let files = [self.of_vcpu(0, "cpu.weight"), self.of_vcpu(1, "cpu.weight")];
        let files = files.into_iter().chain([format!("sys/fs/cgroup/{SCOPE}/cpu.weight")]);
        files.map(|file| self.read(&file)).collect()
    }

    fn shape(&self, args: &[&str]) -> Command {
        let mut command = self.shape_at(PACES);
        command.args(args);
        command
    }

    fn shape_at(&self, paces: &str) -> Command {
        let args = ["shape", "--synthetic-vcpus", paces, "--period-ms", "20"];
        self.command(&args, &[])
    }

    #[track_caller]
    fn refuses(&self, words: &str) {
        for args in [&["web"][..], &["--dry-run", "--once"]] {
            let out = self.shape(args).output().unwrap();
            assert_eq!(out.status.code(), Some(77), "{}", said(&out));
            assert!(said(&out).contains("is left alone: ") && said(&out).contains(words));
            assert!(!said(&out).contains("panicked") && out.stdout.is_empty(), "{}", said(&out));
        }
        self.is_as_before();
    }

    #[track_caller]
    fn is_as_before(&self) {
        assert_eq!(self.weights(), ["100", "100", "100"]);
        assert_eq!(self.journal(), "");
    }

    /// Starts it, and waits until it has set weights.
    fn shapes(&self) -> Child {
        let child = started(self.shape(&[]), || self.weights()[1] != "100");
        assert!(self.journal().contains("cpu.weight"));
        child
    }

    #[track_caller]
    fn comes_back(&self) {
        comes_to("it is not put back", || self.journal().is_empty());
        self.is_as_before();
    }
}

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

/// Nice values of the vCPUs' real threads.
fn nice_of(fake: &Fake) -> [i32; 2] {
    let proc = unspin_host::Host::at(Path::new("/proc"));
    fake.vcpus.map(|tid| proc.nice(tid).unwrap())
}

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

#[test]
fn another_hands_cpus_stay() {
    let fake = Fake::new();
    let now = || fake.vcpus.map(allowed);
    let before = now();
    if before[0] == "0" {
        eprintln!("SKIPPED: this computer has one CPU");
        return;
    }
    let pinned = || now().iter().all(|cpus| cpus.parse::<u32>().is_ok());
    let child = started(fake.shape(&["--parts", "resolver"]), pinned);
    let cpus = unspin_host::cpus::parse(&before[1]).unwrap();
    unspin_host::cpus::set_affinity(fake.vcpus[1], &cpus).unwrap();
    fails(child, &format!("to {}, which was", before[1]));
    assert_eq!(now(), before);
    fake.is_as_before();
}

#[test]
fn signals_end_it_well_after_putting_back() {
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let fake = Fake::new();
        let child = fake.shapes();
        let weights: Vec<u32> = fake.weights().iter().map(|text| text.parse().unwrap()).collect();
        assert!(weights[0] > 120 && weights[1] < 80, "{weights:?}");
        let busy = fake.shape(&[]).output().unwrap();
        assert_eq!(busy.status.code(), Some(1));
        assert!(said(&busy).contains(&format!("(process {}) is changing", child.id())), "{busy:?}");
        let out = ends_well(child, number);
        assert!(said(&out).contains("cpu.weight is 100 again"), "{}", said(&out));
        fake.is_as_before();
    }
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

#[test]
fn killed_it_is_put_back_by_its_guard() {
    let fake = Fake::new();
    let mut child = fake.shapes();
    child.kill().unwrap();
    child.wait().unwrap();
    fake.comes_back();
}

#[test]
fn killed_with_its_guard_it_is_put_back_by_the_next() {
    let fake = Fake::new();
    let mut child = fake.shapes();
    signal(guard_of(&child), libc::SIGKILL);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(fake.weights()[0], "100");
    let next = started(fake.shape(&[]), || true);
    // It handles signals before it restores.
    fake.comes_back();
    signal(next.id(), libc::SIGTERM);
    let out = next.wait_with_output().unwrap();
    assert!(said(&out).contains("restored changes of an earlier unspin: "), "{}", said(&out));
    fake.is_as_before();
}

#[test]
fn another_hands_weight_stays() {
    let fake = Fake::new();
    let child = fake.shapes();
    fake.write(&fake.of_vcpu(1, "cpu.weight"), "777");
    fails(child, "cpu.weight to 777, which was");
    assert_eq!(fake.weights(), ["100", "777", "100"]);
    assert_eq!(fake.journal(), "");
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
fn a_vm_that_ends_leaves_nothing_to_put_back() {
    let fake = Fake::new();
    let child = fake.shapes();
    fs::remove_dir_all(fake.dir.join(format!("proc/{}", fake.vm))).unwrap();
    fs::remove_dir_all(fake.dir.join("sys/fs/cgroup/machine.slice")).unwrap();
    fails(child, "no VM runs on this host");
    assert_eq!(fake.journal(), "");
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

/// It is killed `UNSPIN_KILLS` (25) times at some instant, together with its guard, and the next start
/// restores.
#[test]
fn killed_at_any_instant_the_next_puts_back() {
    let kills = std::env::var("UNSPIN_KILLS").map_or(25, |n| n.parse().expect("a number"));
    let fake = Fake::new();
    let mut were_set = 0;
    for kill in 0..kills {
        let mut child = started(fake.shape(&[]), || true);
        // At some instant of its start, or after its first change.
        let until_us = match kill % 2 {
            0 => 100_000 + kill * 7_919 % 200_000,
            _ => {
                comes_to("nothing is set", || !fake.journal().is_empty());
                kill * 7_919 % 60_000
            }
        };
        std::thread::sleep(std::time::Duration::from_micros(until_us));
        if let Some(guard) = guard_if_any(&child) {
            signal(guard, libc::SIGKILL);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        were_set += u32::from(fake.weights() != ["100", "100", "100"]);
        let back = fake.command(&["diagnose", "--put-back"], &[]).output().unwrap();
        assert!(back.status.success(), "kill {kill}: {}", said(&back));
        assert_eq!(fake.weights(), ["100", "100", "100"], "kill {kill}");
        assert_eq!(fake.journal(), "");
    }
    println!("{kills} kills, {were_set} of them while something was set");
    assert!(were_set > 0);
}

/// CPU time of a process so far, in seconds.
fn cpu_s(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().unwrap()).sum();
    ticks as f64 / 100.0
}

/// Threads of this process that sleep, as vCPUs of 125 VMs.
fn many() -> Fake {
    let fake = Fake::new();
    let (told, ids) = std::sync::mpsc::channel();
    for _ in 0..500 {
        let told = told.clone();
        std::thread::spawn(move || {
            // SAFETY: it has no arguments and cannot fail.
            told.send(unsafe { libc::gettid() } as u32).unwrap();
            std::thread::sleep(std::time::Duration::from_secs(60));
        });
    }
    let tids: Vec<u32> = ids.iter().take(500).collect();
    for (vm, tids) in tids.chunks(4).enumerate() {
        let (pid, slice) = (4_000_000 + vm as u32, format!("machine.slice/machine-{vm}.scope"));
        fake.holds_vm(pid, &format!("vm{vm}"));
        fake.write(&format!("proc/{pid}/status"), &format!("Tgid:\t{pid}"));
        fake.write(&format!("sys/fs/cgroup/{slice}/cpu.weight"), "100");
        for (index, tid) in tids.iter().enumerate() {
            fake.write(&format!("proc/{pid}/task/{tid}/comm"), &format!("CPU {index}/KVM"));
            for file in ["stat", "status"] {
                fake.links(*tid, file);
            }
            fake.write(&format!("proc/{tid}/cgroup"), &format!("0::/{slice}/vcpu{index}"));
            let group = format!("sys/fs/cgroup/{slice}/vcpu{index}");
            fake.write(&format!("{group}/cpu.weight"), "100");
            fake.write(&format!("{group}/cgroup.threads"), &tid.to_string());
        }
    }
    fake
}

#[test]
fn five_hundred_vcpus_cost_little() {
    let fake = many();
    // Threads that sleep, counted by the BPF programs; and synthetic ones, whose weights change.
    let paces = vec!["0.5r,0.25,0.1,0.2"; 126].join("/");
    let sources = [vec![], vec!["--synthetic-vcpus", paces.as_str()]];
    for source in sources {
        let args = [&["shape", "--json"], &source[..]].concat();
        let mut command = fake.command(&args, &[]);
        let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_secs(2));
        if child.try_wait().unwrap().is_some() {
            println!("SKIPPED: reading the maps of BPF programs is not in the cost");
            continue;
        }
        let before = cpu_s(child.id());
        std::thread::sleep(std::time::Duration::from_secs(4));
        let cost = (cpu_s(child.id()) - before) / 4.0;
        signal(child.id(), libc::SIGTERM);
        child.wait().unwrap();
        let of = if source.is_empty() { "that sleep" } else { "that are made up" };
        println!("shape, 500 vCPUs {of}: {:.2} % of a core", 100.0 * cost);
        // Other tests run beside it, and the synthetic files are on a disk.
        assert!(cfg!(debug_assertions) || cost < 0.5, "{cost} of a core");
    }
}
