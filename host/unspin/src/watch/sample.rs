// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sample of VMs, and the difference of two samples.

use super::facts::Facts;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unspin_diagnosis::{groups, Did, State, Times, Waits, Words};
use unspin_host::VmProcess;
use unspin_probe::{Seen, Takers, Thread};

/// After this time the state of every running vCPU is known.
pub const SETTLE: Duration = Duration::from_millis(200);

/// What is known of a host's VMs at one point in time.
pub struct Sample {
    pub at: Instant,
    pub vms: Vec<Running>,
    /// What their threads did since they are watched.
    pub seen: BTreeMap<Thread, Seen>,
    pub facts: Arc<Facts>,
    /// Who had the CPUs for which vCPUs waited, by the VM's process; a VM is missing if that is unknown.
    pub takers: BTreeMap<u32, Takers>,
    /// Number of VMs that are not watched because there is no room.
    pub left_out: usize,
}

#[derive(Debug, Clone)]
pub struct Running {
    pub process: VmProcess,
    /// All threads of its process.
    pub threads: Vec<u32>,
}

pub trait Source {
    /// Looks for VMs that started or ended, and watches new ones from now on.
    fn look(&mut self) -> anyhow::Result<()>;

    /// Watches the VM of this process even if there is no room for others.
    fn prefer(&mut self, _pid: u32) {}

    /// Looks for VMs, and takes a sample.
    fn sample(&mut self) -> anyhow::Result<Sample>;

    /// A cheaper sample: of the VMs of the last look, with the facts of that look and present states of
    /// their vCPUs.
    fn again(&mut self) -> anyhow::Result<Sample> {
        self.sample()
    }
}

/// A VM, and what its vCPUs did in a time, by number. The list is empty if no thread is known to run a
/// vCPU: a paused or idle VM may not show which threads do.
pub struct Watched<'a> {
    pub vm: &'a VmProcess,
    pub vcpus: Vec<(u32, Seen)>,
}

impl Running {
    /// The threads of its vCPUs. If not all are known, all its threads; of these, the ones that leave a guest
    /// count.
    pub fn watched(&self) -> impl Iterator<Item = Thread> + '_ {
        let (vm, pid) = (&self.process, self.process.pid);
        let known = vm.vcpus.iter().map(|vcpu| vcpu.tid);
        let is_other = |tid: &u32| !vm.is_all_known() && self.number(*tid).is_none();
        let others = self.threads.iter().copied().filter(is_other);
        known.chain(others).map(move |tid| Thread { tid, pid })
    }

    /// The number of the vCPU that a thread runs, if the thread's name has one.
    pub fn number(&self, tid: u32) -> Option<u32> {
        self.process.vcpus.iter().find(|vcpu| vcpu.tid == tid).map(|vcpu| vcpu.index)
    }

    /// The times of its vCPUs between two samples, by number. `None` if it has ended, was not there before,
    /// or has no vCPU.
    pub fn between<'a>(
        &'a self,
        before: &BTreeMap<Thread, Seen>,
        after: &BTreeMap<Thread, Seen>,
    ) -> Option<Watched<'a>> {
        let all: Vec<(u32, Seen)> = self
            .watched()
            .filter(|thread| self.threads.binary_search(&thread.tid).is_ok())
            .filter_map(|thread| {
                Some((thread.tid, after.get(&thread)?.since(before.get(&thread)?)))
            })
            .collect();
        let was_there = !all.is_empty();
        let is_vcpu =
            |(tid, seen): &(u32, Seen)| self.number(*tid).is_some() || seen.exits.total() > 0;
        let known: Vec<u32> = self.process.vcpus.iter().map(|vcpu| vcpu.index).collect();
        let mut free = (0..).filter(|number| !known.contains(number));
        let numbered = |(tid, seen)| Some((self.number(tid).or_else(|| free.next())?, seen));
        let mut vcpus: Vec<(u32, Seen)> =
            all.into_iter().filter(is_vcpu).filter_map(numbered).collect();
        vcpus.sort_by_key(|(number, _)| *number);
        let is_shown = !vcpus.is_empty() || (was_there && self.process.vcpu_count > 0);
        is_shown.then_some(Watched { vm: &self.process, vcpus })
    }
}

impl Watched<'_> {
    /// The number of its vCPUs, including those whose threads are unknown.
    pub fn count(&self) -> usize {
        self.vcpus.len().max(self.vm.vcpu_count)
    }

    pub fn did(&self, before: &Facts, facts: &Facts) -> Did {
        let vcpus = self.vcpus.iter().map(|(_, seen)| seen);
        let mut did = did(self.vm.pid, vcpus, before, facts);
        // If a watched thread may run no vCPU, the VM's counts are not those of its vCPUs.
        let seen = facts.seen_since(before, self.vm.pid);
        if let (Some(seen), true) = (seen, self.vm.is_all_known() && did.vcpus > 0) {
            did.monitor_ns = Some(seen.monitor_ns);
            if did.unseen == 0 {
                did.wanting_ns = seen.wanting_ns;
            }
            // Times of accesses end with the next entry into the guest.
            did.accesses = seen.accesses.filter(|_| !did.is_unseen()).map(groups);
        }
        did
    }
}

/// Why all vCPUs of a VM sleep, if the guest cannot be the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// They sleep in the VMM, as when it pauses the VM.
    Paused,
    /// They are stopped or frozen from outside the VM.
    Stopped,
}

/// vCPUs may be in other states for 1/HELD_REST of the time: a request to the VMM may wake a vCPU of a
/// paused VM.
const HELD_REST: u64 = 1000;

impl Held {
    /// The result for these vCPUs. vCPUs that were not observed are unknown.
    pub fn of(did: &Did) -> Option<Held> {
        let times = Some(&did.times).filter(|_| did.unseen == 0)?;
        let (blocked, stopped) = (times[State::Blocked], times[State::Stopped]);
        let rest = times.total() - blocked - stopped;
        match rest <= (blocked + stopped) / HELD_REST && blocked + stopped > 0 {
            true if stopped > blocked => Some(Held::Stopped),
            true => Some(Held::Paused),
            false => None,
        }
    }

    /// The name in tables. A pause is the VMM's internal state, which cannot be observed with
    /// certainty.
    pub fn name(self) -> &'static str {
        match self {
            Held::Paused => "paused?",
            Held::Stopped => "stopped",
        }
    }
}

/// How long these vCPUs waited, in the terms of other tools.
pub fn words<'s>(vcpus: impl IntoIterator<Item = &'s Seen>) -> Words {
    let waits = |seen: &Seen| Waits::of(&seen.times, seen.costop, seen.tells_throttled);
    Waits::sum(vcpus.into_iter().map(waits)).words()
}

/// What these vCPUs of a VM did together.
pub fn did<'s>(
    pid: u32,
    vcpus: impl IntoIterator<Item = &'s Seen>,
    before: &Facts,
    facts: &Facts,
) -> Did {
    let (mut times, mut exits) = (Times::default(), Times::default());
    let (mut count, mut unseen) = (0, 0);
    let (mut hides_throttling, mut hides_reasons) = (false, false);
    for seen in vcpus {
        hides_reasons |= seen.hides_reasons;
        hides_throttling |= !seen.tells_throttled && facts.has_quota(pid);
        times += &seen.times;
        exits += &seen.exits;
        match seen.times.total() {
            0 => unseen += 1,
            _ => count += 1,
        }
    }
    Did {
        vcpus: count,
        window_ns: times.total() / count.max(1) as u64,
        times,
        exits,
        pause_loop_exits: facts.kvm.pause_loop_exits,
        spin_ns_per_exit: facts.spin_ns_per_exit(before, pid),
        user_spin_share: facts.user_spin_share(before, pid),
        caches: facts.caches(pid),
        hides_throttling,
        hides_reasons,
        unseen,
        ..Did::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_cli::fake::Fake;
    use unspin_diagnosis::State;

    #[test]
    fn of_threads_without_names_those_count_that_leave_a_guest() {
        let fake = Fake::new();
        fake.vm("41-0", "web");
        let thread = |tid: u32, comm: &str| fake.write(&format!("proc/41/task/{tid}/comm"), comm);
        thread(41, "qemu-system-x86");
        thread(44, "worker");
        let host = fake.host();
        let running =
            || Running { process: host.vm_process(41).unwrap(), threads: host.threads(41) };
        let vm = running();
        let both: Vec<Thread> = vm.watched().collect();
        let mut after: BTreeMap<Thread, Seen> =
            both.iter().map(|thread| (*thread, Seen::default())).collect();
        let before = after.clone();
        assert!(vm.between(&before, &after).is_none());
        let seen = after.get_mut(&both[1]).unwrap();
        seen.exits[State::ExitHalt] = 3;
        seen.times[State::Guest] = 5;
        let found = vm.between(&before, &after).unwrap().vcpus;
        assert_eq!(found, [(0, after[&both[1]].clone())]);
        // The names that KVM gives its files are used, whether the vCPU runs or not.
        fake.0.link("proc/41/fd/8", "anon_inode:kvm-vcpu:0");
        fake.0.link("proc/41/fd/9", "anon_inode:kvm-vcpu:7");
        let vm = running();
        let idle = vm.between(&after, &after).unwrap();
        assert_eq!((idle.vcpus.len(), idle.count()), (0, 2));
        assert_eq!(vm.between(&before, &after).unwrap().vcpus.len(), 1);
        assert!(vm.between(&BTreeMap::new(), &after).is_none(), "it was not watched before");
        thread(43, "CPU 7/KVM");
        let vm = running();
        let named = vm.watched().next().unwrap();
        after.insert(named, Seen::default());
        assert!(vm.between(&before, &after).is_none(), "it was not there before");
        assert_eq!(vm.between(&after, &after).unwrap().vcpus[0].0, 7);
        let ended = Running { threads: Vec::new(), ..vm };
        assert!(ended.between(&after, &after).is_none());
    }
}
