// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host in files of a temporary directory.

use std::ops::Deref;
use unspin_host::{Groups, Host, Tree, VmProcess};
use unspin_scratch::Scratch;

pub const VM: &str = "anon_inode:kvm-vm";

/// The host's root directory.
pub struct Fake(Scratch);

impl Deref for Fake {
    type Target = Scratch;

    fn deref(&self) -> &Scratch {
        &self.0
    }
}

impl Fake {
    pub fn new() -> Fake {
        let fake = Fake(Scratch::new());
        fake.dir("sys/fs/cgroup");
        fake.proc("1/cgroup", "0::/init.scope\n");
        fake
    }

    pub fn host(&self) -> Host {
        Host::at(&self.join("proc"))
    }

    /// The tree of cgroups, the VMs' places in it, and the VMs.
    pub fn groups(&self) -> (Tree, Groups, Vec<VmProcess>) {
        let host = self.host();
        let (tree, all) = (Tree::of(&host), host.vm_processes().unwrap());
        let groups = Groups::of(&tree, &host, &all);
        (tree, groups, all)
    }

    /// Writes a file of /proc.
    #[track_caller]
    pub fn proc(&self, path: &str, contents: impl AsRef<[u8]>) {
        self.write(format!("proc/{path}"), contents);
    }

    pub fn process(&self, pid: u32, args: &[&[u8]], descriptor: &str, threads: &[(u32, &str)]) {
        let mut line = args.join(&0);
        line.push(0);
        self.proc(&format!("{pid}/cmdline"), line);
        self.descriptor(pid, 0, "/dev/null");
        self.descriptor(pid, 9, descriptor);
        for (tid, comm) in threads {
            self.thread(pid, *tid, comm);
        }
    }

    /// A VM under QEMU with the name `vm<pid>`. The lines of /proc/TID/cgroup are `main` for the VMM, and these for the
    /// threads of its vCPUs, which are 10 times `pid` and the next.
    pub fn placed(&self, pid: u32, main: &str, vcpus: &[&str]) {
        let name = format!("vm{pid}");
        self.process(pid, &[b"/usr/bin/kvm", b"-name", name.as_bytes()], VM, &[(pid, "main")]);
        self.proc(&format!("{pid}/cgroup"), format!("{main}\n"));
        for (index, group) in (0..).zip(vcpus) {
            let tid = pid * 10 + index;
            self.comm(pid, tid, &format!("CPU {index}/KVM"));
            self.proc(&format!("{tid}/cgroup"), format!("{group}\n"));
        }
    }

    pub fn thread(&self, pid: u32, tid: u32, comm: &str) {
        self.comm(pid, tid, comm);
        let status = format!("Name:\t{comm}\nTgid:\t{pid}\nPid:\t{tid}\n");
        self.proc(&format!("{tid}/status"), status);
    }

    /// A thread that is visible only as a thread of its process.
    pub fn comm(&self, pid: u32, tid: u32, comm: &str) {
        self.proc(&format!("{pid}/task/{tid}/comm"), format!("{comm}\n"));
    }

    pub fn descriptor(&self, pid: u32, number: u32, link: &str) {
        self.link(format!("proc/{pid}/fd/{number}"), link);
    }
}

/// The numbers of a VM's vCPUs, and the threads that run them.
pub fn vcpus(vm: &VmProcess) -> Vec<(u32, u32)> {
    vm.vcpus.iter().map(|vcpu| (vcpu.index, vcpu.tid)).collect()
}

/// The 64 digits of a container's id, of which this is the first.
pub fn id(first: char) -> String {
    format!("{first}{}", &"0123456789abcdef".repeat(4)[..63])
}
