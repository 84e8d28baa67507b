// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a VM can be taken, and which of its threads.

use crate::vms;
use std::collections::{BTreeMap, BTreeSet};
use unspin_host::{cpus, policy, Groups, Host, Limit, Task, Tree, VmProcess};
use unspin_schedule::OTHERS;

/// A VM, by its process and the start of that.
pub type Key = (u32, Option<u64>);

pub struct Seen<'a> {
    pub host: &'a Host,
    pub tree: &'a Tree,
    pub groups: &'a Groups,
    /// The CPUs that are for VMs.
    pub cpus: &'a BTreeSet<u32>,
}

#[derive(Debug, PartialEq)]
pub struct Fit {
    pub vcpus: u32,
    /// Its threads that can run on the CPUs for VMs, the first of the process first.
    pub threads: Vec<Thread>,
    /// Threads with SCHED_EXT that cannot run there: they were started with it, and pinned elsewhere since.
    pub away: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Thread {
    pub tid: u32,
    /// When it started, which distinguishes it from another of that number.
    pub start: u64,
    /// The number of its vCPU, or [`OTHERS`].
    pub unit: u32,
    /// The CPUs that it may use of those for VMs, if it may use others, too.
    pub narrowed: Option<BTreeSet<u32>>,
    pub policy: i32,
}

impl Fit {
    /// An error is why the VM is not taken, in words.
    pub fn of(seen: &Seen, vm: &VmProcess) -> Result<Fit, String> {
        vms::has_distinct_vcpus(vm)?;
        let units: BTreeMap<u32, u32> =
            vm.vcpus.iter().map(|vcpu| (vcpu.tid, vcpu.index)).collect();
        let vcpus = units.values().max().map_or(0, |last| last + 1);
        if vcpus > OTHERS {
            return Err(format!("it has more than {OTHERS} vCPUs, which is the most so far"));
        }
        if let Some(limit) = seen.groups.limits(seen.tree, vm.pid).first() {
            return Err(quota(limit, vm));
        }
        let first = seen.host.threads(vm.pid).into_iter().filter(|tid| *tid != vm.pid);
        let all = std::iter::once(vm.pid).chain(first);
        let (mut threads, mut away) = (Vec::new(), Vec::new());
        for tid in all {
            let Some(task) = seen.host.task(tid) else { continue };
            match thread(seen, &task, units.get(&tid).copied())? {
                Some(thread) => threads.push(thread),
                None if task.policy == policy::EXT => away.push(tid),
                None => {}
            }
        }
        Ok(Fit { vcpus, threads, away })
    }
}

fn quota(limit: &Limit, vm: &VmProcess) -> String {
    format!(
        "its cgroup {} has a quota of {} CPUs (cpu.max), which the kernel does not apply to threads of SCHED_EXT; \
         to take it, remove the quota: {}",
        limit.group.path,
        limit.cpus,
        limit.remedy(vm)
    )
}

/// `None`: it is no vCPU and stays as it is.
fn thread(seen: &Seen, task: &Task, unit: Option<u32>) -> Result<Option<Thread>, String> {
    let Task { tid, start, policy, cpus: allowed, .. } = task;
    let (tid, start, policy) = (*tid, *start, *policy);
    if !matches!(policy, libc::SCHED_OTHER | libc::SCHED_BATCH | policy::EXT) {
        return match unit {
            Some(index) => Err(format!(
                "vCPU {index} has another policy than SCHED_OTHER (number {policy} of sched(7)): it is scheduled by that"
            )),
            None => Ok(None),
        };
    }
    let usable = allowed & seen.cpus;
    match (usable.is_empty(), unit) {
        (true, Some(index)) => Err(format!(
            "vCPU {index} may run on CPUs {}, none of which is one of the scheduler's, {}",
            cpus::list(allowed),
            cpus::list(seen.cpus)
        )),
        (true, None) => Ok(None),
        (false, _) => {
            let narrowed = (usable.len() < allowed.len()).then_some(usable);
            Ok(Some(Thread { tid, start, unit: unit.unwrap_or(OTHERS), narrowed, policy }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_cli::fake::Fake;

    /// A thread of VM 41 with a policy, on these CPUs.
    fn thread(fake: &Fake, tid: u32, name: &str, policy: i32, cpus: &str) {
        for dir in [format!("proc/41/task/{tid}"), format!("proc/{tid}")] {
            fake.write(&format!("{dir}/comm"), name);
            let fields = ["0"; 37].join(" ");
            fake.write(&format!("{dir}/stat"), &format!("{tid} ({name}) S {fields} {policy} 0"));
            let status = format!("Tgid:\t41\nCpus_allowed_list:\t{cpus}");
            fake.write(&format!("{dir}/status"), &status);
            fake.write(&format!("{dir}/cgroup"), "0::/machine.slice/vm41.scope");
        }
    }

    fn host() -> Fake {
        let fake = Fake::new();
        fake.vm("41-0", "web");
        thread(&fake, 41, "qemu", 0, "0-7");
        thread(&fake, 42, "CPU 0/KVM", 0, "0-7");
        thread(&fake, 43, "CPU 1/KVM", 3, "2-3");
        thread(&fake, 44, "IO iothread0", 1, "0-7");
        thread(&fake, 45, "vhost-41", 0, "0-1");
        thread(&fake, 46, "worker", policy::EXT, "2");
        thread(&fake, 47, "IO iothread1", policy::EXT, "0-1");
        for dir in ["", "machine.slice/", "machine.slice/vm41.scope/"] {
            fake.write(&format!("sys/fs/cgroup/{dir}cgroup.controllers"), "cpu");
        }
        fake.write("sys/fs/cgroup/machine.slice/vm41.scope/cpu.max", "max 100000");
        fake
    }

    fn fit(fake: &Fake) -> Result<Fit, String> {
        let host = fake.host();
        let tree = Tree::of(&host);
        let vms = host.vm_processes().unwrap();
        let groups = Groups::of(&tree, &host, &vms);
        let cpus = cpus::parse("2-3").unwrap();
        let seen = Seen { host: &host, tree: &tree, groups: &groups, cpus: &cpus };
        Fit::of(&seen, &vms[0])
    }

    #[test]
    fn threads_that_can_run_there_are_taken_the_first_first() {
        let fit = fit(&host()).unwrap();
        assert_eq!(fit.vcpus, 2);
        let threads: Vec<String> = fit
            .threads
            .iter()
            .map(|of| {
                let narrowed = of.narrowed.as_ref().map(cpus::list).unwrap_or_default();
                format!("{} {} {} {narrowed}", of.tid, of.unit, of.policy)
            })
            .collect();
        let wanted = ["41 63 0 2-3", "42 0 0 2-3", "43 1 3 ", "46 63 7 "];
        assert_eq!(threads, wanted, "not one of real time, and none that is elsewhere");
        assert_eq!(fit.away, [47]);
    }

    #[test]
    fn what_cannot_be_taken_is_named() {
        let wrong = |name: &str, change: &dyn Fn(&Fake), words: &str| {
            let fake = host();
            change(&fake);
            let why = fit(&fake).unwrap_err();
            assert!(why.contains(words), "{name}: {why}");
        };
        let quota = "sys/fs/cgroup/machine.slice/vm41.scope/cpu.max";
        let words = "its cgroup /machine.slice/vm41.scope has a quota of 0.5 CPUs (cpu.max)";
        wrong("schedule-quota", &|fake| fake.write(quota, "50000 100000"), words);
        let outer = "sys/fs/cgroup/machine.slice/cpu.max";
        let words = "its cgroup /machine.slice has a quota of 2 CPUs";
        wrong("schedule-outer", &|fake| fake.write(outer, "200000 100000"), words);
        let fifo = |fake: &Fake| thread(fake, 43, "CPU 1/KVM", 1, "2-3");
        wrong("schedule-fifo", &fifo, "vCPU 1 has another policy than SCHED_OTHER (number 1");
        let away = |fake: &Fake| thread(fake, 43, "CPU 1/KVM", 0, "4-7");
        wrong("schedule-away", &away, "vCPU 1 may run on CPUs 4-7, none of which is");
        let many = |fake: &Fake| thread(fake, 50, "CPU 63/KVM", 0, "2-3");
        wrong("schedule-many", &many, "more than 63 vCPUs");
    }
}
