// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host made of files with one VM, whose vCPUs are real threads that sleep.

use super::{command, said};
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use unspin_scratch::Scratch;

/// Time limit for expected events.
pub const WAIT: Duration = Duration::from_secs(60);

pub struct VmHost {
    pub dir: Scratch,
    /// Its process, named `web`, and its two vCPUs.
    pub vm: u32,
    pub vcpus: [u32; 2],
    sleepers: Vec<Child>,
}

impl VmHost {
    #[allow(clippy::new_without_default)]
    pub fn new() -> VmHost {
        let dir = Scratch::new();
        let sleep = || Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let sleepers: Vec<Child> = (0..3).map(|_| sleep()).collect();
        let [vm, first, second] = [0, 1, 2].map(|i: usize| sleepers[i].id());
        let host = VmHost { dir, vm, vcpus: [first, second], sleepers };
        host.write("proc/sys/kernel/random/boot_id", "this");
        for tid in [vm, first, second] {
            for file in ["status", "stat"] {
                host.links(tid, file);
            }
        }
        for (index, tid) in host.vcpus.iter().enumerate() {
            host.write(&format!("proc/{vm}/task/{tid}/comm"), &format!("CPU {index}/KVM"));
        }
        host.holds_vm(vm, "web");
        host
    }

    pub fn write(&self, path: &str, text: &str) {
        self.dir.line(path, text);
    }

    /// A file of a real thread.
    pub fn links(&self, tid: u32, file: &str) {
        self.dir.link(format!("proc/{tid}/{file}"), &format!("/proc/{tid}/{file}"));
    }

    pub fn read(&self, path: &str) -> String {
        self.dir.read(path)
    }

    pub fn holds_vm(&self, pid: u32, name: &str) {
        self.dir.link(format!("proc/{pid}/fd/7"), "anon_inode:kvm-vm");
        let line = format!("/usr/bin/qemu-system-x86_64\0-name\0{name}\0");
        self.dir.write(format!("proc/{pid}/cmdline"), line);
    }

    pub fn journal(&self) -> String {
        fs::read_to_string(self.dir.join("run/journal")).unwrap_or_default()
    }

    /// The command on this host. `dirs` are options, with their directories in the host.
    pub fn command(&self, args: &[&str], dirs: &[(&str, &str)]) -> Command {
        let mut command = command(args);
        // Wide enough for any sentence.
        command.env("COLUMNS", "10000");
        let always = [("--proc", "proc"), ("--sysfs", "mod"), ("--journal", "run/journal")];
        for (option, dir) in always.iter().chain(dirs) {
            command.arg(option).arg(self.dir.join(dir));
        }
        command
    }
}

impl Drop for VmHost {
    fn drop(&mut self) {
        for sleeper in &mut self.sleepers {
            let _ = sleeper.kill();
            let _ = sleeper.wait();
        }
    }
}

/// Starts a command, and waits for a condition.
#[track_caller]
pub fn started(mut command: Command, is_so: impl Fn() -> bool) -> Child {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + WAIT;
    while !is_so() {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < end);
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

#[track_caller]
pub fn comes_to(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + WAIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn signal(pid: u32, signal: i32) {
    // SAFETY: the process is a child of ours, or a child's that waits for nobody.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

/// Sends it a signal, after which it ends without an error.
#[track_caller]
pub fn ends_well(child: Child, number: i32) -> Output {
    signal(child.id(), number);
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    out
}

/// Checks that it ends with 1 and says these words.
#[track_caller]
pub fn fails(child: Child, words: &str) -> Output {
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains(words), "{}", said(&out));
    out
}

/// The process that restores if `child` is killed.
pub fn guard_of(child: &Child) -> u32 {
    guard_if_any(child).unwrap()
}

/// The guard, if it has started.
pub fn guard_if_any(child: &Child) -> Option<u32> {
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    fs::read_to_string(children).unwrap().trim().parse().ok()
}

/// The CPUs that a thread may use, as the kernel lists them.
pub fn allowed(tid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_string()
}
