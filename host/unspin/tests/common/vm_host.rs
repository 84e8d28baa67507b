// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host made of files with one VM, whose vCPUs are real threads that sleep.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time limit for expected events.
pub const WAIT: Duration = Duration::from_secs(60);

pub struct VmHost {
    pub dir: PathBuf,
    /// Its process, named `web`, and its two vCPUs.
    pub vm: u32,
    pub vcpus: [u32; 2],
    sleepers: Vec<Child>,
}

impl VmHost {
    pub fn new(test: &str, name: &str) -> VmHost {
        let dir = std::env::temp_dir().join(format!("unspin-{test}-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let sleep = || Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let sleepers: Vec<Child> = (0..3).map(|_| sleep()).collect();
        let [vm, first, second] = [0, 1, 2].map(|i: usize| sleepers[i].id());
        let host = VmHost { dir, vm, vcpus: [first, second], sleepers };
        host.write("proc/sys/kernel/random/boot_id", "this");
        for tid in [vm, first, second] {
            fs::create_dir_all(host.dir.join(format!("proc/{tid}"))).unwrap();
            for file in ["status", "stat"] {
                let path = format!("proc/{tid}/{file}");
                symlink(format!("/{path}"), host.dir.join(path)).unwrap();
            }
        }
        for (index, tid) in host.vcpus.iter().enumerate() {
            host.write(&format!("proc/{vm}/task/{tid}/comm"), &format!("CPU {index}/KVM"));
        }
        host.holds_vm(vm, "web");
        host
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir.join(path)).unwrap().trim().to_string()
    }

    pub fn holds_vm(&self, pid: u32, name: &str) {
        let proc = self.dir.join(format!("proc/{pid}"));
        fs::create_dir_all(proc.join("fd")).unwrap();
        symlink("anon_inode:kvm-vm", proc.join("fd/7")).unwrap();
        let line = format!("/usr/bin/qemu-system-x86_64\0-name\0{name}\0");
        fs::write(proc.join("cmdline"), line).unwrap();
    }

    pub fn journal(&self) -> String {
        fs::read_to_string(self.dir.join("run/journal")).unwrap_or_default()
    }

    /// The command on this host. `dirs` are options, with their directories in the host.
    pub fn command(&self, args: &[&str], dirs: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
        // Wide enough for any sentence.
        command.args(args).stdin(Stdio::null()).env("COLUMNS", "10000");
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
        let _ = fs::remove_dir_all(&self.dir);
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

pub fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

pub fn signal(pid: u32, signal: i32) {
    // SAFETY: the process is a child of ours, or a child's that waits for nobody.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
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
