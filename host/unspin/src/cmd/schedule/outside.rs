// SPDX-License-Identifier: MIT OR Apache-2.0
//! VMs that are not taken, and may run on the scheduler's CPUs all the same: there they run before VMs that are taken.

use super::fit::Key;
use std::collections::BTreeSet;
use unspin_host::{cpus, policy, Host, VmProcess};

/// What was found at the last look.
#[derive(Default)]
pub struct Outside {
    /// On which of these CPUs each may run.
    vms: Vec<(VmProcess, BTreeSet<u32>)>,
    /// Those of the look before: a VM that has just started may be taken at the next.
    before: BTreeSet<Key>,
    /// Those that have been named, while they are there.
    named: BTreeSet<Key>,
}

impl Outside {
    /// Looks at VMs that are not taken. Whether others are found than before.
    pub fn look(&mut self, host: &Host, cpus: &BTreeSet<u32>, vms: &[&VmProcess]) -> bool {
        let found = vms.iter().map(|vm| ((*vm).clone(), usable(host, vm.pid, cpus)));
        let found: Vec<_> = found.filter(|(_, usable)| !usable.is_empty()).collect();
        self.before = self.vms.iter().map(|(vm, _)| key(host, vm)).collect();
        self.named.retain(|(pid, start)| host.start_time(*pid) == *start);
        let is_other = found != self.vms;
        self.vms = found;
        is_other
    }

    pub fn vms(&self) -> &[(VmProcess, BTreeSet<u32>)] {
        &self.vms
    }

    /// A line for each VM that has been outside for two looks, once.
    pub fn lines(&mut self, host: &Host) -> Vec<String> {
        let mut lines = Vec::new();
        for (vm, cpus) in &self.vms {
            if self.before.contains(&key(host, vm)) && self.named.insert(key(host, vm)) {
                lines.push(line(vm.title(), &cpus::list(cpus)));
            }
        }
        lines
    }
}

/// What is said of a VM.
pub fn line(name: &str, cpus: &str) -> String {
    format!("{name}: not taken, and may run on CPUs {cpus}, where it runs before VMs that are")
}

fn key(host: &Host, vm: &VmProcess) -> Key {
    (vm.pid, host.start_time(vm.pid))
}

/// Those of these CPUs on which a thread of the process may run that is not under this scheduler.
fn usable(host: &Host, pid: u32, cpus: &BTreeSet<u32>) -> BTreeSet<u32> {
    let threads = host.threads(pid).into_iter();
    let others = threads.filter(|tid| host.scheduling_policy(*tid) != Some(policy::EXT));
    others.flat_map(|tid| &host.allowed_cpus(tid) & cpus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_cli::fake::Fake;

    /// A thread of VM 41.
    fn thread(fake: &Fake, tid: u32, policy: i32, cpus: &str) {
        fake.write(&format!("proc/41/task/{tid}/comm"), "CPU 0/KVM");
        let fields = ["0"; 37].join(" ");
        fake.write(&format!("proc/{tid}/stat"), &format!("{tid} (t) S {fields} {policy} 0"));
        let status = format!("Tgid:\t41\nCpus_allowed_list:\t{cpus}");
        fake.write(&format!("proc/{tid}/status"), &status);
    }

    #[test]
    fn a_vm_that_stays_outside_is_named_once() {
        let fake = Fake::new();
        fake.vm("41-0", "web");
        thread(&fake, 41, 0, "0-1");
        thread(&fake, 42, 0, "0-2");
        thread(&fake, 43, policy::EXT, "0-7");
        let host = fake.host();
        let vms = host.vm_processes().unwrap();
        let all: Vec<&VmProcess> = vms.iter().collect();
        let ours = cpus::parse("2-3").unwrap();
        let mut outside = Outside::default();
        let mut look = |vms: &[&VmProcess]| {
            let is_other = outside.look(&host, &ours, vms);
            (is_other, outside.lines(&host).len(), outside.vms().len())
        };
        assert_eq!(look(&[]), (false, 0, 0));
        assert_eq!(look(&all), (true, 0, 1), "it may be taken at the next look");
        assert_eq!(look(&all), (false, 1, 1));
        assert_eq!(look(&all), (false, 0, 1));
        thread(&fake, 42, 0, "0-3");
        assert_eq!(look(&all), (true, 0, 1), "on other CPUs");
        assert_eq!(look(&[]), (true, 0, 0));
        thread(&fake, 42, 0, "0-1");
        assert_eq!(look(&all), (false, 0, 0), "the scheduler's CPUs are left to the scheduler");
        thread(&fake, 42, 0, "0-2");
        assert_eq!(look(&all), (true, 0, 1));
        assert_eq!(look(&all), (false, 0, 1), "it was named before");
        assert_eq!(outside.vms()[0].1, BTreeSet::from([2]));
    }

    #[test]
    fn a_vm_without_a_name_has_that_of_its_scope() {
        let fake = Fake::new();
        fake.0.vm(41, &["/usr/bin/vmm"]);
        thread(&fake, 41, 0, "0-3");
        let (host, ours) = (fake.host(), cpus::parse("2-3").unwrap());
        for (group, name) in [("/", "pid:41"), ("/q.scope", "q")] {
            fake.write("proc/41/cgroup", &format!("0::{group}"));
            let vms = host.vm_processes().unwrap();
            let all: Vec<&VmProcess> = vms.iter().collect();
            let mut outside = Outside::default();
            assert!(outside.look(&host, &ours, &all));
            assert!(!outside.look(&host, &ours, &all));
            assert_eq!(outside.lines(&host), [line(name, "2-3")]);
        }
    }
}
