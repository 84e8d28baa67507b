// SPDX-License-Identifier: MIT OR Apache-2.0
//! The VMs of a host, as /proc shows them: which processes hold KVM VMs, what QEMU and libvirt call
//! them, which of their threads are vCPUs. Reads only; what ends meanwhile is left out.

mod cgroup;
pub mod cpus;
mod identity;
mod kvm;
mod monitor;
mod name;
mod qemu;

pub use cgroup::{Cgroup, Quota};
pub use kvm::Kvm;
pub use monitor::Monitor;
pub use name::Name;

use identity::Identity;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the descriptor of a VM links to.
const VM_DESCRIPTOR: &[u8] = b"anon_inode:kvm-vm";

/// A process that has VMs: under QEMU exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmProcess {
    pub pid: u32,
    /// The program that it runs.
    pub monitor: Monitor,
    /// The VM's name, if its monitor was given one, or libvirt gave it one.
    pub name: Option<Name>,
    /// The VM's UUID, likewise.
    pub uuid: Option<String>,
    /// Threads whose names say so, by their number: `CPU n/KVM`, as QEMU names them with
    /// `debug-threads=on`, which libvirt sets; Firecracker's `fc_vcpu n`; Cloud Hypervisor's `vcpun`.
    pub vcpus: Vec<Vcpu>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vcpu {
    pub index: u32,
    pub tid: u32,
}

/// The processes of a host.
#[derive(Debug, Clone)]
pub struct Host {
    proc: PathBuf,
}

impl Default for Host {
    fn default() -> Host {
        Host::at(Path::new("/proc"))
    }
}

impl Host {
    /// The host whose processes `proc` shows.
    pub fn at(proc: &Path) -> Host {
        Host { proc: proc.to_path_buf() }
    }

    /// Every process, by process id, whether it has VMs or not.
    pub fn processes(&self) -> io::Result<BTreeSet<u32>> {
        Ok(numbers_in(&self.proc)?.into_iter().collect())
    }

    /// Every process that has VMs, by process id. Of the processes of others, whose descriptors only
    /// root may see, those that have vCPU threads.
    pub fn vm_processes(&self) -> io::Result<Vec<VmProcess>> {
        Ok(self.processes()?.into_iter().filter_map(|pid| self.look_at(pid)).collect())
    }

    /// The process a thread belongs to, if it has VMs. A process is its own first thread.
    pub fn vm_process(&self, tid: u32) -> Option<VmProcess> {
        self.look_at(self.process_of(tid)?)
    }

    /// The process behind a VM of the module, which calls it `<pid>-<n>` after the thread that made
    /// it.
    pub fn of_module_id(&self, id: &str) -> Option<VmProcess> {
        let (tid, _) = id.split_once('-')?;
        self.vm_process(tid.parse().ok()?)
    }

    /// All threads of a process, whatever they are called; none where it has ended.
    pub fn threads(&self, pid: u32) -> Vec<u32> {
        let mut threads = numbers_in(&self.dir(pid).join("task")).unwrap_or_default();
        threads.sort_unstable();
        threads
    }

    fn process_of(&self, tid: u32) -> Option<u32> {
        let status = fs::read(self.dir(tid).join("status")).ok()?;
        let line = status.split(|b| *b == b'\n').find_map(|l| l.strip_prefix(b"Tgid:"))?;
        std::str::from_utf8(line).ok()?.trim().parse().ok()
    }

    fn look_at(&self, pid: u32) -> Option<VmProcess> {
        let (monitor, identity) = self.identity(pid);
        let vcpus = self.vcpus(pid, monitor);
        match self.holds_vm(pid) {
            Ok(true) => {}
            Err(e) if e.kind() == ErrorKind::PermissionDenied && !vcpus.is_empty() => {}
            _ => return None,
        }
        let name = identity.name.or_else(|| self.cgroup(pid)?.libvirt_name());
        Some(VmProcess { pid, monitor, name: name.map(Name::new), uuid: identity.uuid, vcpus })
    }

    fn holds_vm(&self, pid: u32) -> io::Result<bool> {
        for entry in fs::read_dir(self.dir(pid).join("fd"))? {
            match fs::read_link(entry?.path()) {
                Ok(to) if to.as_os_str().as_bytes() == VM_DESCRIPTOR => return Ok(true),
                // It was closed since it was listed.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                other => drop(other?),
            }
        }
        Ok(false)
    }

    fn vcpus(&self, pid: u32, monitor: Monitor) -> Vec<Vcpu> {
        let tasks = self.dir(pid).join("task");
        let index = |tid: u32| {
            let comm = fs::read(tasks.join(tid.to_string()).join("comm")).ok()?;
            Some(Vcpu { index: monitor.vcpu_index(&comm)?, tid })
        };
        let mut vcpus: Vec<Vcpu> =
            numbers_in(&tasks).unwrap_or_default().into_iter().filter_map(index).collect();
        vcpus.sort_unstable();
        vcpus
    }

    fn identity(&self, pid: u32) -> (Monitor, Identity) {
        let line = fs::read(self.dir(pid).join("cmdline")).unwrap_or_default();
        let mut args: Vec<&[u8]> = line.split(|b| *b == 0).collect();
        // Each argument ends with a NUL.
        args.pop();
        let Some((program, args)) = args.split_first() else {
            return (Monitor::Other, Identity::default());
        };
        let mut monitor = Monitor::of(program, args);
        if monitor == Monitor::Other {
            let exe = fs::read_link(self.dir(pid).join("exe")).unwrap_or_default();
            monitor = Monitor::of(exe.as_os_str().as_bytes(), args);
        }
        (monitor, monitor.identity(args))
    }

    /// The cgroup that a thread's CPU time is controlled by.
    pub fn cgroup(&self, tid: u32) -> Option<Cgroup> {
        Cgroup::parse(&fs::read_to_string(self.dir(tid).join("cgroup")).ok()?)
    }

    /// What the scheduler has counted of a thread, as the kernel writes it: ns on a CPU, ns ready for one,
    /// time slices.
    pub fn schedstat(&self, tid: u32) -> Option<String> {
        fs::read_to_string(self.dir(tid).join("schedstat")).ok()
    }

    /// The CPUs that a thread may run on; none where it has ended.
    pub fn allowed_cpus(&self, tid: u32) -> BTreeSet<u32> {
        let status = fs::read_to_string(self.dir(tid).join("status")).unwrap_or_default();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        list.and_then(cpus::parse).unwrap_or_default()
    }

    fn dir(&self, pid: u32) -> PathBuf {
        self.proc.join(pid.to_string())
    }
}

/// The names in a directory that are numbers.
fn numbers_in(dir: &Path) -> io::Result<Vec<u32>> {
    let names = fs::read_dir(dir)?.flatten().map(|entry| entry.file_name());
    Ok(names.filter_map(|name| name.to_str()?.parse().ok()).collect())
}
