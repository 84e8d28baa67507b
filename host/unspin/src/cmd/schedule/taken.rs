// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which VMs are taken: looks for those that started or ended, and gives their threads to the scheduler.

use super::document::Document;
use super::fit::{Fit, Key, Seen, Thread};
use super::host_use::HostUse;
use super::outside::Outside;
use super::shares::shares;
use super::user_spin::UserSpins;
use super::Args;
use crate::exit::Cannot;
use crate::undo::Undo;
use crate::vms;
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::{Duration, Instant};
use unspin_host::journal::{Error, Target};
use unspin_host::{cpus, policy, Groups, Host, Tree, VmProcess};
use unspin_schedule::{Gang, Scheduler, Vm, WEIGHT_USUAL};

/// For how long tasks of the host may use too much of all CPUs.
const ALL_USED_MOST: Duration = Duration::from_secs(7);
/// At how many looks in a row it may fail to give a VM's threads to the scheduler: then the VM is tried no more.
const FAILURES_MOST: u32 = 3;

pub struct Taking<'a> {
    args: &'a Args,
    host: &'a Host,
    tree: Tree,
    /// The CPUs for VMs, and those of --cpus that are left to tasks of the host.
    cpus: BTreeSet<u32>,
    left: BTreeSet<u32>,
    host_use: HostUse,
    user_spins: UserSpins,
    /// Since when tasks of the host use too much of all CPUs that remain.
    all_used_since: Option<Instant>,
    scheduler: Scheduler,
    /// Threads that have been given to the scheduler, by their ids.
    given: BTreeMap<u32, Given>,
    failures: Failures,
    pending: Pending,
    vms: Vec<(VmProcess, Vm)>,
    /// The first look is over: a VM that is named may have ended since.
    began: bool,
    refused: Vec<(VmProcess, String)>,
    outside: Outside,
}

/// Whose thread it is, and when it started.
struct Given {
    pid: u32,
    start: Option<u64>,
}

/// VMs whose threads could not be given to the scheduler: at how many looks in a row, and why.
#[derive(Default)]
struct Failures(BTreeMap<Key, (u32, String)>);

impl Failures {
    fn add(&mut self, vm: Key, why: &str) {
        let known = self.0.entry(vm).or_default();
        *known = (known.0 + 1, why.to_string());
    }

    /// Its threads were given to it.
    fn end(&mut self, vm: &Key) {
        self.0.remove(vm);
    }

    /// Why a VM is not tried again, if so.
    fn last(&self, vm: &Key) -> Option<&String> {
        self.0.get(vm).filter(|(looks, _)| *looks >= FAILURES_MOST).map(|(_, why)| why)
    }
}

/// What could not be done for a VM, by its process. It is tried again at each look.
#[derive(Default)]
struct Pending(BTreeMap<u32, String>);

impl Pending {
    /// What is to be said of it: an error that was not there at the last look.
    fn note(&mut self, pid: u32, done: anyhow::Result<()>) -> Option<String> {
        let Err(e) = done else {
            self.0.remove(&pid);
            return None;
        };
        let why = format!("{e:#}");
        let before = self.0.insert(pid, why.clone());
        (before.as_ref() != Some(&why))
            .then(|| format!("the VM of process {pid}: {why}; it is tried again each second"))
    }
}

impl<'a> Taking<'a> {
    pub fn new(
        args: &'a Args,
        host: &'a Host,
        cpus: BTreeSet<u32>,
        scheduler: Scheduler,
    ) -> Taking<'a> {
        let tree = Tree::at(host, &args.cgroups);
        let (given, failures) = (BTreeMap::new(), Failures::default());
        let (pending, outside) = (Pending::default(), Outside::default());
        let (vms, refused) = (Vec::new(), Vec::new());
        let (left, host_use) = (BTreeSet::new(), HostUse::begin(Instant::now()));
        let user_spins = UserSpins::new(args.sysfs.clone());
        Taking {
            args,
            host,
            tree,
            cpus,
            left,
            host_use,
            user_spins,
            all_used_since: None,
            scheduler,
            given,
            failures,
            pending,
            vms,
            began: false,
            refused,
            outside,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.vms.is_empty()
    }

    /// The VMs that are not taken, and why.
    pub fn refusals(&self) -> String {
        let each = self.refused.iter().map(|(vm, why)| format!("{}: {why}", vm.title()));
        each.collect::<Vec<_>>().join("; ")
    }

    /// Looks which VMs there are, and takes those that are new, and new threads. Whether something has changed.
    ///
    /// # Errors
    /// The kernel has ended the scheduler, or a named VM is not there at the first look.
    pub fn look(&mut self, undo: &mut Undo) -> anyhow::Result<bool> {
        let leaves = self.leave_cpus()?;
        let all = vms::processes(self.host)?;
        let gangs = self.gangs(&all);
        let chosen = self.chosen(&all)?;
        let in_user_space = self.user_spins.look(Instant::now(), self.host);
        let groups = Groups::of(&self.tree, self.host, &all);
        let (mut vms, mut refused) = (Vec::new(), Vec::new());
        let fits: Vec<(VmProcess, Result<Fit, String>)> =
            chosen.into_iter().map(|vm| (vm.clone(), self.fit(&groups, &vm))).collect();
        let fit = fits.iter().filter_map(|(vm, fit)| Some((vm.pid, fit.as_ref().ok()?.vcpus)));
        let shares = shares(&self.tree, &groups, &fit.collect::<Vec<_>>());
        for (process, fit) in fits {
            let gang = self.gang(&gangs, &in_user_space, process.pid);
            let weight = shares.get(&process.pid).copied().unwrap_or(WEIGHT_USUAL);
            let vm = |fit: &Fit| Vm {
                weight,
                gang,
                vcpus: fit.vcpus,
                pid: process.pid,
                threads: fit.threads.iter().map(|thread| (thread.tid, thread.unit)).collect(),
            };
            match fit.and_then(|fit| self.take(undo, &process, &fit, vm(&fit))) {
                Ok(vm) => vms.push((process, vm)),
                Err(why) => refused.push((process, why)),
            }
        }
        let is_there = |pid: u32| vms.iter().any(|(process, _)| process.pid == pid);
        // Of VMs that are refused now, some threads may have been given before the error.
        let known = self.vms.iter().map(|(process, _)| process.pid);
        let known = known.chain(self.given.values().map(|of| of.pid));
        let known = known.chain(self.pending.0.keys().copied());
        let left: BTreeSet<u32> = known.filter(|pid| !is_there(*pid)).collect();
        let not_taken: Vec<&VmProcess> = all.iter().filter(|vm| !is_there(vm.pid)).collect();
        for pid in left {
            self.leave(undo, pid)?;
        }
        // Threads that could leave these CPUs have.
        if leaves {
            self.scheduler.leave(&self.left)?;
        }
        let other_outside = self.outside.look(self.host, &self.cpus, &not_taken);
        for line in self.outside.lines(self.host) {
            say!("unspin: {line}");
        }
        let changed =
            other_outside || leaves || shown(&vms) != shown(&self.vms) || refused != self.refused;
        self.began = true;
        (self.vms, self.refused) = (vms, refused);
        Ok(changed)
    }

    /// Leaves CPUs that tasks of the host use, at most half of --cpus: a task that moves about must not take one
    /// after another. Whether any was left.
    ///
    /// # Errors
    /// For some time such tasks use all CPUs that remain: VMs would get what these leave.
    fn leave_cpus(&mut self) -> anyhow::Result<bool> {
        let (now, report) = (Instant::now(), self.scheduler.report()?);
        let online = self.host.online_cpus();
        let there = online.map_or_else(|| self.cpus.clone(), |online| &self.cpus & &online);
        let used = self.host_use.look(now, &there, &report.host_ns);
        if !used.is_empty() && used.len() == there.len() {
            let since = *self.all_used_since.get_or_insert(now);
            if now.duration_since(since) < ALL_USED_MOST {
                return Ok(false);
            }
            let why = "tasks of the host use more than half of each of the CPUs";
            let then = "keep them away, or choose other CPUs";
            return Err(Cannot(format!("{why} {}; {then}", cpus::list(&there))).into());
        }
        self.all_used_since = None;
        let (before, mut remain) = (self.left.len(), there.len());
        for (cpu, share) in &used {
            if self.left.len() >= remain {
                break;
            }
            let percent = 100.0 * share;
            say!("unspin: CPU {cpu} is left to tasks of the host, which use {percent:.0} % of it");
            self.cpus.remove(cpu);
            self.left.insert(*cpu);
            remain -= 1;
        }
        Ok(self.left.len() > before)
    }

    /// Whether a VM can be taken. One whose threads could not be given to the scheduler again and again is not.
    fn fit(&self, groups: &Groups, vm: &VmProcess) -> Result<Fit, String> {
        self.may_take(vm)?;
        if let Some(why) = self.failures.last(&self.key(vm)) {
            return Err(why.clone());
        }
        let (host, tree, cpus) = (self.host, &self.tree, &self.cpus);
        Fit::of(&Seen { host, tree, groups, cpus }, vm)
    }

    fn key(&self, vm: &VmProcess) -> Key {
        (vm.pid, self.host.start_time(vm.pid))
    }

    fn gang(&self, declared: &BTreeSet<u32>, in_user_space: &BTreeSet<u32>, pid: u32) -> Gang {
        if self.args.no_gangs {
            Gang::Never
        } else if declared.contains(&pid) {
            Gang::Always
        } else if in_user_space.contains(&pid) {
            Gang::Spins
        } else {
            Gang::Auto
        }
    }

    /// The processes of VMs that are named. One that is not there is an error only at the first look: it may have
    /// ended since.
    fn named(&self, all: &[VmProcess], names: &[OsString]) -> anyhow::Result<BTreeSet<u32>> {
        let found = names.iter().map(|vm| vms::find_process(all.to_vec(), self.host, vm));
        let found = found.filter(|vm| vm.is_ok() || !self.began);
        found.map(|vm| vm.map(|vm| vm.pid)).collect()
    }

    /// The processes of VMs of --gang. One that is not there may start later.
    fn gangs(&self, all: &[VmProcess]) -> BTreeSet<u32> {
        let found = self.args.gang.iter().map(|vm| vms::find_process(all.to_vec(), self.host, vm));
        let known = |vm: anyhow::Result<VmProcess>| match vm {
            Ok(vm) => Some(vm.pid),
            Err(e) if !self.began => {
                say!("unspin: --gang: {e:#}; a VM of this name that starts later is a gang");
                None
            }
            Err(_) => None,
        };
        found.filter_map(known).collect()
    }

    fn chosen(&self, all: &[VmProcess]) -> anyhow::Result<Vec<VmProcess>> {
        let named = self.named(all, &self.args.vms)?;
        let is_chosen = |vm: &&VmProcess| self.args.vms.is_empty() || named.contains(&vm.pid);
        Ok(all.iter().filter(is_chosen).cloned().collect())
    }

    /// Whether the VM was named, or is of somebody whose VMs this is for. Anybody may have a process with a VM.
    fn may_take(&self, vm: &VmProcess) -> Result<(), String> {
        if !self.args.vms.is_empty() {
            return Ok(());
        }
        vms::is_of_trusted(self.host, vm, "to take it, name it: unspin schedule")
    }

    /// Gives its threads to the scheduler, which knows them before. An error is why it is not taken, in words.
    fn take(
        &mut self,
        undo: &mut Undo,
        process: &VmProcess,
        fit: &Fit,
        vm: Vm,
    ) -> Result<Vm, String> {
        self.scheduler.set(&vm).map_err(|e| e.to_string())?;
        let is_away = |tid: u32, of: &Given| of.pid == vm.pid && !vm.threads.contains_key(&tid);
        let back = self.give_back(undo, is_away);
        let mut later = back.and_then(|()| self.end_inherited(undo, vm.pid, &fit.away));
        for thread in &fit.threads {
            let start = self.host.start_time(thread.tid);
            let is_given = self.given.get(&thread.tid).is_some_and(|of| of.start == start);
            if is_given && thread.policy == policy::EXT && thread.narrowed.is_none() {
                continue;
            }
            // It is known before: an error may come after a part of the change.
            self.given.insert(thread.tid, Given { pid: vm.pid, start });
            let is_heir = !is_given && thread.policy == policy::EXT;
            let had = if is_heir { self.inherited(undo, vm.pid, thread.tid) } else { Vec::new() };
            let given = if_there(undo.adopt(&had)).and_then(|()| give(undo, thread));
            let Err(e) = given else { continue };
            let is_full = e.downcast_ref::<Error>().is_some_and(Error::is_of_journal);
            if is_full && is_heir && thread.narrowed.is_none() {
                // The scheduler has it already, and it gets back what others of the VM get back.
                self.given.remove(&thread.tid);
                later = Err(e);
                continue;
            }
            let why = format!("{e:#}");
            if !is_full {
                self.failures.add(self.key(process), &why);
            }
            // What was to be done later is tried when the VM is left.
            return Err(why);
        }
        self.failures.end(&self.key(process));
        self.note(vm.pid, later);
        Ok(vm)
    }

    /// What a thread has from one of the VM's that started it, and what it would have otherwise.
    fn inherited(&self, undo: &Undo, pid: u32, tid: u32) -> Vec<(Target, String, String)> {
        let policy = undo.policy_before(pid, tid).to_string();
        let cpus = undo.cpus_before(pid, tid).map(|before| {
            let is = cpus::list(&self.host.allowed_cpus(tid));
            (Target::Affinity { tid }, cpus::list(&before), is)
        });
        let policy = (Target::Policy { tid }, policy, policy::EXT.to_string());
        std::iter::once(policy).chain(cpus).collect()
    }

    /// Keeps what is to be tried again.
    fn note(&mut self, pid: u32, done: anyhow::Result<()>) {
        if let Some(line) = self.pending.note(pid, done) {
            say!("unspin: {line}");
        }
    }

    /// These threads get their policies and CPUs back, if they are still there. Then they are given no longer.
    fn give_back(
        &mut self,
        undo: &mut Undo,
        which: impl Fn(u32, &Given) -> bool,
    ) -> anyhow::Result<()> {
        let is_back = |(tid, of): &(&u32, &Given)| which(**tid, of);
        let back: BTreeSet<u32> = self.given.iter().filter(is_back).map(|(tid, _)| *tid).collect();
        if back.is_empty() {
            return Ok(());
        }
        undo.put_back_threads(|tid| back.contains(&tid))?;
        self.given.retain(|tid, _| !back.contains(tid));
        Ok(())
    }

    /// Those of these threads that have SCHED_EXT inherited it, because threads that were given have theirs back.
    fn end_inherited(&self, undo: &Undo, pid: u32, tids: &[u32]) -> anyhow::Result<()> {
        let mut result = Ok(());
        for tid in tids.iter().copied() {
            if self.host.scheduling_policy(tid) != Some(policy::EXT) {
                continue;
            }
            match policy::set(tid, undo.policy_before(pid, tid)) {
                Err(e) if e.raw_os_error() != Some(libc::ESRCH) => {
                    result =
                        Err(e).with_context(|| format!("cannot set {}", Target::Policy { tid }));
                }
                _ => {}
            }
        }
        result
    }

    /// A VM that ended, or is not or no longer to be taken: its threads, if there are any, are ordinary ones again.
    /// What cannot be restored is tried again at the next look.
    ///
    /// # Errors
    /// The scheduler does not forget it.
    fn leave(&mut self, undo: &mut Undo, pid: u32) -> anyhow::Result<()> {
        // Heirs have the CPUs of threads that were given: those get theirs back first.
        let back = self.give_back(undo, |_, of| of.pid == pid);
        let ended = back.and_then(|()| self.end_inherited(undo, pid, &self.host.threads(pid)));
        self.note(pid, ended);
        self.scheduler.remove(pid)?;
        Ok(())
    }

    pub fn document(&self) -> anyhow::Result<Document> {
        let report = self.scheduler.report()?;
        let cpus = (&self.cpus, &self.left);
        let outside = self.outside.vms();
        Ok(Document::new(cpus, &self.scheduler, &report, &self.vms, &self.refused, outside))
    }
}

/// What is worth a report if it changes: VMs start and end threads all the time.
fn shown(vms: &[(VmProcess, Vm)]) -> Vec<(u32, u32, Gang, u32)> {
    vms.iter().map(|(_, vm)| (vm.pid, vm.vcpus, vm.gang, vm.weight)).collect()
}

/// Makes the thread the scheduler's, unless it has ended. Its policy comes first: a thread that it starts between the
/// two changes has that, and is found by it.
fn give(undo: &mut Undo, thread: &Thread) -> anyhow::Result<()> {
    let tid = thread.tid;
    let narrowed = thread.narrowed.iter().map(|set| (Target::Affinity { tid }, cpus::list(set)));
    let taken = (Target::Policy { tid }, policy::EXT.to_string());
    let wanted: Vec<(Target, String)> = std::iter::once(taken).chain(narrowed).collect();
    if_there(undo.change(&wanted))
}

/// A thread that has ended is no error.
fn if_there(done: anyhow::Result<()>) -> anyhow::Result<()> {
    done.or_else(|e| if has_ended(&e) { Ok(()) } else { Err(e) })
}

/// Whether a thread that was to be changed is no longer there.
fn has_ended(e: &anyhow::Error) -> bool {
    match e.downcast_ref::<Error>() {
        Some(Error::Gone(_)) => true,
        Some(Error::Io { source, .. }) => {
            source.raw_os_error() == Some(libc::ESRCH)
                || source.kind() == std::io::ErrorKind::NotFound
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_is_tried_again_after_a_passing_error() {
        let (vm, other) = ((41, Some(7)), (41, Some(8)));
        let mut failures = Failures::default();
        for _ in 1..FAILURES_MOST {
            failures.add(vm, "no space");
        }
        assert_eq!(failures.last(&vm), None);
        failures.end(&vm);
        for _ in 1..FAILURES_MOST {
            failures.add(vm, "no space");
        }
        assert_eq!(failures.last(&vm), None);
        failures.add(vm, "not permitted");
        assert_eq!(failures.last(&vm).map(String::as_str), Some("not permitted"));
        assert_eq!(failures.last(&other), None, "a later process of the same number");
    }

    #[test]
    fn an_error_is_said_once_until_it_is_another_or_has_ended() {
        let mut pending = Pending::default();
        let mut note = |pid: u32, why: Option<&'static str>| {
            pending.note(pid, why.map_or(Ok(()), |why| Err(anyhow::Error::msg(why)))).is_some()
        };
        for (pid, why, is_said) in [
            (41, None, false),
            (41, Some("no space"), true),
            (41, Some("no space"), false),
            (42, Some("no space"), true),
            (41, Some("not permitted"), true),
            (41, None, false),
            (41, Some("not permitted"), true),
        ] {
            assert_eq!(note(pid, why), is_said, "{pid} {why:?}");
        }
        assert_eq!(pending.0.keys().copied().collect::<Vec<_>>(), [41, 42]);
    }
}
