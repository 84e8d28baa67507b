// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin diagnose VM --ab CAUSE` on a host made of files, whose vCPUs are real threads that sleep: its
//! results and refusals, and that it restores everything, for any end.

mod common;

use common::vm_host::{self, allowed, comes_to, guard_of, signal, started, VmHost};
use common::{json, said, text};
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

const SPINS: &str = "exit:pause=0.3,ready:vm=0.01/exit:pause=0.001";
const FILES: [(&str, &str); 5] = [
    ("mode", "off"),
    ("window_min_cycles", "4096"),
    ("window_init_cycles", "8192"),
    ("window_max_cycles", "32768"),
    ("delta_cycles", "1024"),
];

/// A host with a module, one VM of two vCPUs, and two CPUs with `caches`.
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
        fake.write("sys/module/kvm/parameters/halt_poll_ns", "200000");
        fake.write("mod/version", env!("CARGO_PKG_VERSION"));
        fake.write("mod/window_control", "vmx");
        for (file, value) in FILES {
            fake.write(&format!("mod/vms/{}-0/{file}", fake.vm), value);
        }
        fake
    }

    /// Sets the caches of CPUs 0 and 1.
    fn caches(&self, lists: [&str; 2]) {
        for (cpu, list) in lists.iter().enumerate() {
            let dir = format!("sys/devices/system/cpu/cpu{cpu}/cache/index3");
            self.write(&format!("{dir}/level"), "3");
            self.write(&format!("{dir}/shared_cpu_list"), list);
        }
    }

    fn module_file(&self, file: &str) -> String {
        self.read(&format!("mod/vms/{}-0/{file}", self.vm))
    }

    fn diagnose(&self, args: &[&str]) -> Command {
        self.command(&[&["diagnose"], args].concat(), &[("--sys", "sys")])
    }

    fn ab(&self, cause: &str, states: &str, more: &[&str]) -> Command {
        let args = ["web", "--ab", cause, "--synthetic-states", states];
        let is_long = more.iter().any(|arg| arg.starts_with("--seconds"));
        let seconds: &[&str] = if is_long { &[] } else { &["--seconds=0.2"] };
        self.diagnose(&[&args[..], seconds, more].concat())
    }

    #[track_caller]
    fn refuses(&self, cause: &str, states: &str, code: i32, words: &str) {
        let out = self.ab(cause, states, &["--rounds", "2"]).output().unwrap();
        let said = said(&out);
        assert_eq!(out.status.code(), Some(code), "{said}");
        assert!(said.contains(words) && !said.contains("panicked"), "{said}");
        assert!(out.stdout.is_empty());
        self.is_as_before();
    }

    #[track_caller]
    fn is_as_before(&self) {
        for (file, value) in FILES {
            assert_eq!(self.module_file(file), value, "{file}");
        }
        assert_eq!(self.read("sys/module/kvm/parameters/halt_poll_ns"), "200000");
        assert_eq!(self.journal(), "");
    }

    /// Starts an experiment that stays in B for a while, and waits until B is set.
    fn in_b(&self) -> Child {
        let command = self.ab("spin-switch", SPINS, &["--seconds=1.5", "--rounds=2"]);
        let child = started(command, || self.module_file("mode") == "aple");
        assert!(self.journal().contains("window_max_cycles"));
        child
    }

    #[track_caller]
    fn comes_back(&self) {
        let is_back =
            || self.module_file("window_max_cycles") == "32768" && self.journal().is_empty();
        comes_to("it is not put back", is_back);
        self.is_as_before();
    }
}

/// Checks that it ends with 1 and prints these words.
#[track_caller]
fn fails(child: Child, words: &str) {
    assert!(vm_host::fails(child, words).stdout.is_empty());
}

#[test]
fn wrong_usage_is_2() {
    let fails = |args: &[&str], words: &str| {
        common::fails(&[&["diagnose"], args].concat(), 2, words);
    };
    fails(&["web", "--ab", "contention"], "would have to come from other VMs; instead: ");
    fails(&["web", "--ab", "ipi"], "fixed when a VM starts; instead: ");
    fails(&["web", "--ab", "user-spin"], "instead: unspin set");
    fails(&["web", "--ab", "else"], "[possible values: spin-switch, idle-switch, cache]");
    fails(&["--ab", "cache"], "required");
    fails(&["web", "--rounds", "3"], "--ab");
    fails(&["web", "--ab", "cache", "--rounds", "1"], "--rounds");
    fails(&["web", "--put-back"], "cannot be used with");
    for more in [&["--rounds", "3"][..], &["--work", "x"], &["--seconds", "1"], &["--details"]] {
        fails(&[&["--put-back"], more].concat()[..], "cannot be used with");
    }
}

#[test]
fn arms_are_compared_and_put_back() {
    let fake = Fake::new();
    let out = fake.ab("spin-switch", SPINS, &["--json", "--work", "date +%s%N"]).output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    let json = json(&out);
    let ab = &json["ab"];
    assert_eq!((&json["schema"], &ab["order"]), (&1.into(), &"ABBAABBA".into()));
    let causes = ab["causes"].as_array().unwrap();
    let spin = causes.iter().find(|cause| cause["of"] == "spin-switch").unwrap();
    let (a, difference) = (spin["a"].as_f64().unwrap(), spin["difference"].as_f64().unwrap());
    assert!((0.29..0.33).contains(&a) && (-0.33..-0.28).contains(&difference), "{spin}");
    assert_eq!(spin["zero_within"], false);
    let ratio = &ab["work"]["ratio"];
    assert!((0.8..1.2).contains(&ratio["value"].as_f64().unwrap()), "{ratio}");
    fake.is_as_before();

    let halts = "exit:halt=0.1,poll=0.3/exit:halt=0.2,poll=0";
    let out = fake.ab("idle-switch", halts, &["--rounds", "2"]).output().unwrap();
    let text = text(&out.stdout);
    assert!(out.status.success(), "{}", said(&out));
    assert!(text.contains("B: no polling (halt_poll_ns 0)"), "{text}");
    fake.is_as_before();
}

#[test]
fn vcpus_are_placed_and_placed_back() {
    let fake = Fake::new();
    let cpus = || fake.vcpus.map(allowed);
    let before = cpus();
    if before[0] != "0-1" {
        println!("SKIPPED: it takes CPUs 0 and 1 and no others");
        return;
    }
    fake.caches(["0-1", "0-1"]);
    fake.refuses("cache", "guest=1/guest=1", 77, "(0-1) share one last-level cache");
    fake.caches(["0", "1"]);
    fake.refuses("cache", "guest=1/guest=1", 77, "2 vCPUs, and no last-level cache has as many");
    // A VM of one vCPU, whose thread is really moved.
    let second = fake.dir.join(format!("proc/{}/task/{}", fake.vm, fake.vcpus[1]));
    fs::remove_dir_all(second).unwrap();
    let command = fake.ab("cache", "guest=1/guest=1", &["--seconds=1", "--rounds=2"]);
    let child = started(command, || cpus()[0] == "0");
    assert_eq!(cpus()[1], before[1]);
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    assert!(String::from_utf8_lossy(&out.stdout).contains("a CPU per vCPU, all in one cache: 0"));
    assert_eq!(cpus(), before);
}

#[test]
fn what_would_harm_or_mislead_is_refused() {
    let fake = Fake::new();
    let waits = "exit:pause=0.3,ready:vm=0.06/exit:pause=0";
    fake.refuses("spin-switch", waits, 1, "waits for CPUs that others use, 6.");
    let later = "exit:pause=0.3/exit:pause=0,ready:host=0.2";
    fake.refuses("spin-switch", later, 1, "waits for CPUs that others use, 2");
    let same = "exit:pause=0.3/exit:pause=0.3";
    fake.refuses("spin-switch", same, 1, "does not use the window of the module");
    let same = "exit:halt=0.1,poll=0.3/exit:halt=0.1,poll=0.3";
    fake.refuses("idle-switch", same, 1, "KVM_CAP_HALT_POLL");
    let parameter = fake.dir.join("sys/module/kvm/parameters/halt_poll_ns");
    let mode = |mode| fs::set_permissions(&parameter, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o444);
    fake.refuses("idle-switch", same, 77, "this kernel does not allow the change");
    mode(0o644);
    fake.write("mod/window_control", "none: no BTF");
    fake.refuses("spin-switch", SPINS, 77, "window_control is \"none: no BTF\"");
    for (tid, comm) in fake.vcpus.iter().zip(["worker", "worker"]) {
        fake.write(&format!("proc/{}/task/{tid}/comm", fake.vm), comm);
    }
    fake.write("mod/window_control", "vmx");
    fake.refuses("spin-switch", SPINS, 77, "does not name its vCPU threads");
    fake.refuses("cache", SPINS, 77, "debug-threads=on");
    fake.holds_vm(900_001, "other");
    fake.refuses("idle-switch", same, 1, "also runs other (process 900001)");
    fs::rename(fake.dir.join("mod"), fake.dir.join("elsewhere")).unwrap();
    let out = fake.ab("spin-switch", SPINS, &[]).output().unwrap();
    assert_eq!(out.status.code(), Some(77), "{}", said(&out));
    assert!(said(&out).contains("sudo unspin load"), "{}", said(&out));
}

/// Reports what is restored and what is not, also to users who may not read the journal.
#[test]
fn put_back_denies_no_change() {
    let fake = Fake::new();
    let put_back = || fake.diagnose(&["--put-back"]);
    let out = put_back().output().unwrap();
    assert!(out.status.success() && said(&out).contains("nothing to restore"), "{}", said(&out));
    let journal = fake.dir.join("run/journal");
    // A complete line with a wrong byte.
    let text = "0badc0de {\"begin\":{\"schema\":1,\"boot\":\"b\"}}\n";
    fs::create_dir_all(journal.parent().unwrap()).unwrap();
    fs::set_permissions(journal.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(&journal, text).unwrap();
    fs::set_permissions(&journal, fs::Permissions::from_mode(0o600)).unwrap();
    let out = put_back().output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("line 1 is damaged"), "{}", said(&out));
    assert_eq!(fs::read_to_string(&journal).unwrap(), text, "it stays");
    // SAFETY: it has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: another user: only root can become one");
        return;
    }
    let program = Path::new("/tmp").join(format!("unspin-put-back-{}", std::process::id()));
    fs::copy(env!("CARGO_BIN_EXE_unspin"), &program).unwrap();
    let mut other = Command::new(&program);
    other.args(put_back().get_args()).uid(65534).gid(65534);
    let out = other.output().unwrap();
    fs::remove_file(&program).unwrap();
    assert_eq!(out.status.code(), Some(77), "{}", said(&out));
    assert!(said(&out).contains("only root may restore"), "{}", said(&out));
}

#[test]
fn a_command_that_says_no_number_changes_nothing() {
    let fake = Fake::new();
    let out = fake.ab("spin-switch", SPINS, &["--work", "echo much"]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(said(&out).contains("printed \"much\\n\", which is not a number"), "{}", said(&out));
    fake.is_as_before();
}

#[test]
fn signals_end_it_after_putting_back() {
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let fake = Fake::new();
        let child = fake.in_b();
        let busy = fake.ab("spin-switch", SPINS, &[]).output().unwrap();
        assert_eq!(busy.status.code(), Some(1));
        assert!(said(&busy).contains(&format!("(process {}) is changing", child.id())), "{busy:?}");
        signal(child.id(), number);
        fails(child, "interrupted");
        fake.is_as_before();
    }
}

#[test]
fn killed_it_is_put_back_by_its_guard() {
    let fake = Fake::new();
    let mut child = fake.in_b();
    child.kill().unwrap();
    fake.comes_back();
    let mut text = String::new();
    // The guard also has it open, so it ends with the guard.
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    assert!(text.contains("ended before it restored"), "{text}");
    assert!(text.contains("window_max_cycles is 32768 again"), "{text}");
}

#[test]
fn a_terminal_that_is_stopped_does_not_keep_its_guard() {
    let fake = Fake::new();
    let mut child = fake.in_b();
    let stderr = child.stderr.as_ref().unwrap();
    let path = format!("/proc/self/fd/{}", stderr.as_raw_fd());
    let mut pipe =
        OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
    for size in [4096, 1] {
        while pipe.write(&vec![b'x'; size]).is_ok() {}
    }
    child.kill().unwrap();
    child.wait().unwrap();
    fake.comes_back();
}

#[test]
fn hung_it_is_killed_and_put_back_by_its_guard() {
    let fake = Fake::new();
    let mut child = fake.in_b();
    signal(child.id(), libc::SIGSTOP);
    fake.comes_back();
    child.wait().unwrap();
}

#[test]
fn killed_with_its_guard_it_is_put_back_by_the_next() {
    let fake = Fake::new();
    for next in ["--put-back", "ab"] {
        let mut child = fake.in_b();
        signal(guard_of(&child), libc::SIGKILL);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(fake.module_file("mode"), "aple");
        let out = match next {
            "ab" => fake.ab("spin-switch", SPINS, &["--rounds", "2"]).output().unwrap(),
            _ => fake.diagnose(&[next, "--json"]).output().unwrap(),
        };
        assert!(out.status.success(), "{}", said(&out));
        assert!(said(&out).contains("restored changes of an earlier unspin: "), "{}", said(&out));
        if next == "--put-back" {
            let json = json(&out);
            assert!(json["restored"].as_array().is_some_and(|all| !all.is_empty()), "{json}");
        }
        fake.is_as_before();
    }
    let out = fake.diagnose(&["--put-back"]).output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(said(&out), "nothing to restore\n");
    let fresh = Fake::new();
    let out = fresh.diagnose(&["--put-back"]).output().unwrap();
    assert_eq!((out.status.code(), said(&out).as_str()), (Some(0), "nothing to restore\n"));
    assert!(!fresh.dir.join("run").exists(), "it makes nothing either");
    let out = fresh.diagnose(&["--put-back", "--json"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "{\"schema\":1,\"restored\":[]}\n");
}

#[test]
fn without_its_guard_it_ends() {
    let fake = Fake::new();
    let child = fake.in_b();
    signal(guard_of(&child), libc::SIGKILL);
    fails(child, "the guard process, which restores settings, has ended");
    fake.is_as_before();
}

#[test]
fn another_hands_value_stays() {
    let fake = Fake::new();
    let child = fake.in_b();
    let file = format!("mod/vms/{}-0/window_min_cycles", fake.vm);
    fake.write(&file, "777");
    fails(child, "window_min_cycles to 777, which was 1073741824 in this phase; it stays");
    assert_eq!(fake.module_file("window_min_cycles"), "777");
    fake.write(&file, "4096");
    fake.is_as_before();
}

#[test]
fn a_vm_that_ends_leaves_nothing_to_put_back() {
    let fake = Fake::new();
    let child = fake.in_b();
    fs::remove_dir_all(fake.dir.join(format!("proc/{}", fake.vm))).unwrap();
    fs::remove_dir_all(fake.dir.join(format!("mod/vms/{}-0", fake.vm))).unwrap();
    fails(child, "web (process");
    assert_eq!(fake.journal(), "");
}
