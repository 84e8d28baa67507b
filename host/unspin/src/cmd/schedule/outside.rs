// SPDX-License-Identifier: MIT OR Apache-2.0
//! VMs that are not taken, and may run on the scheduler's CPUs all the same: there they run before VMs that are taken.

use super::fit::Key;
use std::collections::{BTreeMap, BTreeSet};
use unspin_host::{cpus, policy, Host, VmProcess};

/// A thread that is neither new, nor a vCPU's, nor the first of its process is looked at every so many looks.
const ALL_EVERY: u32 = 10;

#[derive(Default)]
pub struct Outside {
    /// On which of these CPUs each may run, and which process each is.
    pub vms: Vec<(VmProcess, BTreeSet<u32>)>,
    keys: Vec<Key>,
    /// Those of the look before: a VM that has just started may be taken at the next.
    before: BTreeSet<Key>,
    /// Those that have been named, while they are there.
    named: BTreeSet<Key>,
    /// Threads of all VMs that are not taken.
    threads: BTreeMap<Key, Threads>,
}

#[derive(Default)]
struct Threads {
    looks: u32,
    /// The CPUs on which each may run; none if it has SCHED_EXT.
    cpus: BTreeMap<u32, BTreeSet<u32>>,
}

impl Threads {
    /// Reads what may be other than at the last look.
    fn look(&mut self, host: &Host, vm: &VmProcess) {
        let is_all = self.looks % ALL_EVERY == 0;
        self.looks += 1;
        let often: BTreeSet<u32> = vm.vcpus.iter().map(|vcpu| vcpu.tid).chain([vm.pid]).collect();
        let mut before = std::mem::take(&mut self.cpus);
        for tid in host.threads(vm.pid) {
            let known = before.remove(&tid).filter(|_| !is_all && !often.contains(&tid));
            let read = || {
                let task = host.task(tid)?;
                Some(if task.policy == policy::EXT { BTreeSet::new() } else { task.cpus })
            };
            self.cpus.extend(known.or_else(read).map(|cpus| (tid, cpus)));
        }
    }

    /// Those of these CPUs on which one may run that is not under this scheduler.
    fn usable(&self, cpus: &BTreeSet<u32>) -> BTreeSet<u32> {
        self.cpus.values().flat_map(|of| of & cpus).collect()
    }
}

impl Outside {
    /// Looks at VMs that are not taken. Whether others are found than before.
    pub fn look(&mut self, host: &Host, cpus: &BTreeSet<u32>, vms: &[&VmProcess]) -> bool {
        self.before = std::mem::take(&mut self.keys).into_iter().collect();
        let mut known = std::mem::take(&mut self.threads);
        let mut found = Vec::new();
        for vm in vms {
            let key = (vm.pid, host.start_time(vm.pid));
            let mut threads = known.remove(&key).unwrap_or_default();
            threads.look(host, vm);
            let usable = threads.usable(cpus);
            self.threads.insert(key, threads);
            if !usable.is_empty() {
                found.push(((*vm).clone(), usable));
                self.keys.push(key);
            }
        }
        self.named.retain(|(pid, start)| host.start_time(*pid) == *start);
        let is_other = found != self.vms;
        self.vms = found;
        is_other
    }

    /// A line for each VM that has been outside for two looks, once.
    pub fn lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for ((vm, cpus), key) in self.vms.iter().zip(&self.keys) {
            if self.before.contains(key) && self.named.insert(*key) {
                lines.push(line(vm.title(), &cpus::list(cpus)));
            }
        }
        lines
    }
}

pub fn line(name: &str, cpus: &str) -> String {
    format!("{name}: not taken, and may run on CPUs {cpus}, where it runs before VMs that are")
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
            (is_other, outside.lines().len(), outside.vms.len())
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
        assert_eq!(outside.vms[0].1, BTreeSet::from([2]));
    }

    #[test]
    fn what_may_have_changed_is_read() {
        let fake = Fake::new();
        fake.vm("41-0", "web");
        for tid in [41, 42, 43] {
            thread(&fake, tid, 0, "0-1");
        }
        for tid in [41, 43] {
            fake.write(&format!("proc/41/task/{tid}/comm"), "worker");
        }
        let host = fake.host();
        let vms = host.vm_processes().unwrap();
        assert_eq!(vms[0].vcpus.iter().map(|vcpu| vcpu.tid).collect::<Vec<_>>(), [42]);
        let all: Vec<&VmProcess> = vms.iter().collect();
        let ours = cpus::parse("2-3").unwrap();
        let mut outside = Outside::default();
        let mut found = || {
            outside.look(&host, &ours, &all);
            outside.vms.first().map(|(_, cpus)| cpus::list(cpus)).unwrap_or_default()
        };
        assert_eq!(found(), "");
        for tid in [41, 42, 44] {
            thread(&fake, tid, 0, "1-2");
            assert_eq!(found(), "2", "the first, a vCPU, and a new one: {tid}");
            thread(&fake, tid, policy::EXT, "1-2");
            let later = if tid == 44 { "2" } else { "" };
            assert_eq!(found(), later, "{tid}");
        }
        thread(&fake, 43, 0, "1-3");
        let looks = (0..ALL_EVERY).position(|_| found() == "2-3").expect("it is seen in time");
        assert!(looks > 0, "it is not looked at each time");
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
            assert_eq!(outside.lines(), [line(name, "2-3")]);
        }
    }
}
