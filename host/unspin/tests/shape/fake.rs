// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host made of files, with one VM in cgroups as libvirt creates them.

use crate::common::said;
use crate::common::vm_host::{comes_to, started, VmHost};
use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, Command};

pub const SCOPE: &str = r"machine.slice/machine-qemu\x2d1\x2dweb.scope";
/// The first vCPU was runnable at the end, the second was idle.
const PACES: &str = "0.5r,0.25";

/// A host with one VM of two vCPUs, in cgroups as libvirt creates them.
pub struct Fake(VmHost);

impl Deref for Fake {
    type Target = VmHost;

    fn deref(&self) -> &VmHost {
        &self.0
    }
}

impl Fake {
    pub fn new() -> Fake {
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
    pub fn of_vcpu(&self, index: usize, file: &str) -> String {
        format!("sys/fs/cgroup/{SCOPE}/libvirt/vcpu{index}/{file}")
    }

    /// Sets the prefix of the vCPUs' `/proc/TID/cgroup`.
    pub fn in_cgroups(&self, hierarchy: &str) {
        for (index, tid) in self.vcpus.iter().enumerate() {
            let text = format!("{hierarchy}/{SCOPE}/libvirt/vcpu{index}");
            self.write(&format!("proc/{tid}/cgroup"), &text);
        }
    }

    /// Sets the scheduling class of the second vCPU (field 41 of stat).
    pub fn class(&self, number: &str) {
        let path = format!("proc/{}/stat", self.vcpus[1]);
        let text = fs::read_to_string(format!("/{path}")).unwrap();
        let (name, fields) = text.rsplit_once(") ").unwrap();
        let mut fields: Vec<&str> = fields.split_whitespace().collect();
        fields[41 - 3] = number;
        fs::remove_file(self.dir.join(&path)).unwrap();
        self.write(&path, &format!("{name}) {}", fields.join(" ")));
    }

    pub fn weights(&self) -> Vec<String> {
        let files = [self.of_vcpu(0, "cpu.weight"), self.of_vcpu(1, "cpu.weight")];
        let files = files.into_iter().chain([format!("sys/fs/cgroup/{SCOPE}/cpu.weight")]);
        files.map(|file| self.read(&file)).collect()
    }

    pub fn shape(&self, args: &[&str]) -> Command {
        let mut command = self.shape_at(PACES);
        command.args(args);
        command
    }

    pub fn shape_at(&self, paces: &str) -> Command {
        let args = ["shape", "--synthetic-vcpus", paces, "--period-ms", "20"];
        self.command(&args, &[])
    }

    #[track_caller]
    pub fn refuses(&self, words: &str) {
        for args in [&["web"][..], &["--dry-run", "--once"]] {
            let out = self.shape(args).output().unwrap();
            assert_eq!(out.status.code(), Some(77), "{}", said(&out));
            assert!(said(&out).contains("is left alone: ") && said(&out).contains(words));
            assert!(!said(&out).contains("panicked") && out.stdout.is_empty(), "{}", said(&out));
        }
        self.is_as_before();
    }

    #[track_caller]
    pub fn is_as_before(&self) {
        assert_eq!(self.weights(), ["100", "100", "100"]);
        assert_eq!(self.journal(), "");
    }

    /// Starts it, and waits until it has set weights.
    pub fn shapes(&self) -> Child {
        let child = started(self.shape(&[]), || self.weights()[1] != "100");
        assert!(self.journal().contains("cpu.weight"));
        child
    }

    #[track_caller]
    pub fn comes_back(&self) {
        comes_to("it is not put back", || self.journal().is_empty());
        self.is_as_before();
    }
}

/// Nice values of the vCPUs' real threads.
pub fn nice_of(fake: &Fake) -> [i32; 2] {
    let proc = unspin_host::Host::at(Path::new("/proc"));
    fake.vcpus.map(|tid| proc.nice(tid).unwrap())
}
