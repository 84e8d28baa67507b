// SPDX-License-Identifier: MIT OR Apache-2.0
//! The VMs of a host, as /proc shows them: which processes hold KVM VMs, what QEMU and libvirt call
//! them, which of their threads are vCPUs. Reads only; what ends meanwhile is left out.

mod name;
mod qemu;

pub use name::Name;

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
    /// The VM's name, if its monitor is QEMU and was given one.
    pub name: Option<Name>,
    /// The VM's UUID, likewise.
    pub uuid: Option<String>,
    /// Threads named `CPU n/KVM`, by n. QEMU names them with `debug-threads=on`, which libvirt sets.
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

    /// Every process that has VMs, by process id. Of the processes of others, whose descriptors only
    /// root may see, those that have vCPU threads.
    pub fn vm_processes(&self) -> io::Result<Vec<VmProcess>> {
        let mut found: Vec<VmProcess> =
            numbers_in(&self.proc)?.into_iter().filter_map(|pid| self.look_at(pid)).collect();
        found.sort_by_key(|p| p.pid);
        Ok(found)
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
        let vcpus = self.vcpus(pid);
        match self.holds_vm(pid) {
            Ok(true) => {}
            Err(e) if e.kind() == ErrorKind::PermissionDenied && !vcpus.is_empty() => {}
            _ => return None,
        }
        let identity = self.identity(pid).unwrap_or_default();
        Some(VmProcess { pid, name: identity.name.map(Name::new), uuid: identity.uuid, vcpus })
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

    fn vcpus(&self, pid: u32) -> Vec<Vcpu> {
        let tasks = self.dir(pid).join("task");
        let index = |tid: u32| {
            let comm = fs::read(tasks.join(tid.to_string()).join("comm")).ok()?;
            Some(Vcpu { index: vcpu_index(&comm)?, tid })
        };
        let mut vcpus: Vec<Vcpu> =
            numbers_in(&tasks).unwrap_or_default().into_iter().filter_map(index).collect();
        vcpus.sort_unstable();
        vcpus
    }

    fn identity(&self, pid: u32) -> Option<qemu::Identity> {
        let line = fs::read(self.dir(pid).join("cmdline")).ok()?;
        let mut args: Vec<&[u8]> = line.split(|b| *b == 0).collect();
        // Each argument ends with a NUL.
        args.pop();
        let (program, args) = args.split_first()?;
        let exe = fs::read_link(self.dir(pid).join("exe")).ok();
        let exe = exe.as_ref().map(|path| path.as_os_str().as_bytes());
        (qemu::is_qemu(program) || exe.is_some_and(qemu::is_qemu)).then(|| qemu::identity(args))
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

/// n of `CPU n/KVM`.
fn vcpu_index(comm: &[u8]) -> Option<u32> {
    let name = std::str::from_utf8(comm).ok()?.trim_end_matches('\n');
    name.strip_prefix("CPU ")?.strip_suffix("/KVM")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcpu_threads_are_known_by_their_names() {
        assert_eq!(vcpu_index(b"CPU 0/KVM\n"), Some(0));
        assert_eq!(vcpu_index(b"CPU 1234/KVM\n"), Some(1234));
        for other in [&b"CPU 0/TCG\n"[..], b"CPU /KVM", b"IO mon_iothread", b"CPU -1/KVM", b"\xff"]
        {
            assert_eq!(vcpu_index(other), None, "{other:?}");
        }
    }
}
