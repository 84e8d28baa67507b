// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which VMs are taken: looks for those that started or ended, and gives their threads to the scheduler.

use super::again::{Failures, Pauses, Pending};
use super::document::Document;
use super::fit::{Fit, Key, Seen, Thread};
use super::host_use::HostUse;
use super::outside::Outside;
use super::shares::shares;
use super::user_spin::UserSpins;
use super::Args;
use crate::exit::Cannot;
use crate::sysfs::root;
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
    /// At this look, a thread with SCHED_EXT could not be kept from CPUs that are left: that could not be recorded.
    stays_there: bool,
    failures: Failures,
    pauses: Pauses,
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
    start: u64,
}

impl<'a> Taking<'a> {
    pub fn new(
        args: &'a Args,
        host: &'a Host,
        cpus: BTreeSet<u32>,
        scheduler: Scheduler,
    ) -> Taking<'a> {
        Taking {
            args,
            host,
            tree: Tree::of(host),
            cpus,
            left: BTreeSet::new(),
            host_use: HostUse::begin(Instant::now()),
            user_spins: UserSpins::new(root()),
            all_used_since: None,
            scheduler,
            given: BTreeMap::new(),
            stays_there: false,
            failures: Failures::default(),
            pauses: Pauses::default(),
            pending: Pending::default(),
            vms: Vec::new(),
            began: false,
            refused: Vec::new(),
            outside: Outside::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.vms.is_empty()
    }

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
        self.stays_there = false;
        self.pauses.retain(|(pid, start)| self.host.start_time(*pid) == *start);
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
        let known = known.chain(self.pending.pids());
        let left: BTreeSet<u32> = known.filter(|pid| !is_there(*pid)).collect();
        let not_taken: Vec<&VmProcess> = all.iter().filter(|vm| !is_there(vm.pid)).collect();
        for pid in left {
            self.leave(undo, pid)?;
        }
        // Threads that could leave these CPUs have. One that stays would wait there for what tasks of the host leave.
        if !self.stays_there {
            self.scheduler.leave(&self.left)?;
        }
        let other_outside = self.outside.look(self.host, &self.cpus, &not_taken);
        for line in self.outside.lines() {
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

    /// Whether a VM can be taken. One whose threads could not be given to the scheduler again and again is not, and not
    /// now one that could not be recorded.
    fn fit(&self, groups: &Groups, vm: &VmProcess) -> Result<Fit, String> {
        self.may_take(vm)?;
        let (key, now) = (self.key(vm), Instant::now());
        let pause = || self.pauses.why(&key, now).filter(|_| !self.is_taken(vm.pid));
        if let Some(why) = self.failures.last(&key).or_else(pause) {
            return Err(why.clone());
        }
        let (host, tree, cpus) = (self.host, &self.tree, &self.cpus);
        Fit::of(&Seen { host, tree, groups, cpus }, vm)
    }

    fn key(&self, vm: &VmProcess) -> Key {
        (vm.pid, self.host.start_time(vm.pid))
    }

    fn is_taken(&self, pid: u32) -> bool {
        self.vms.iter().any(|(process, _)| process.pid == pid)
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
        let (key, now) = (self.key(process), Instant::now());
        let mut waits = self.pauses.why(&key, now).is_some();
        let threads: Vec<&Thread> = match waits {
            true => Vec::new(),
            false => fit.threads.iter().filter(|thread| !self.is_its(thread)).collect(),
        };
        match self.give(undo, vm.pid, &threads) {
            Ok(()) if !threads.is_empty() => self.pauses.end(&key),
            Ok(()) => {}
            Err(e) => {
                let why = format!("{e:#}");
                if !is_of_journal(&e) {
                    self.failures.add(key, &why);
                    // What was to be done later is tried when the VM is left.
                    return Err(why);
                }
                if self.pauses.add(key, now, &why) {
                    let then = "its threads stay as they are, and are tried again within a minute";
                    say!("unspin: {}: {why}; {then}", process.title());
                }
                if !self.is_taken(vm.pid) {
                    self.scheduler.remove(vm.pid).map_err(|e| e.to_string())?;
                    return Err(why);
                }
                waits = true;
            }
        }
        let stays = |thread: &Thread| thread.narrowed.is_some() && thread.policy == policy::EXT;
        self.stays_there |= waits && fit.threads.iter().any(stays);
        self.failures.end(&key);
        let is_away = |tid: u32, of: &Given| of.pid == vm.pid && !vm.threads.contains_key(&tid);
        let back = self.give_back(undo, is_away);
        let later = back.and_then(|()| self.end_inherited(undo, vm.pid, &fit.away));
        self.note(vm.pid, later);
        Ok(vm)
    }

    fn is_given(&self, thread: &Thread) -> bool {
        self.given.get(&thread.tid).is_some_and(|of| of.start == thread.start)
    }

    /// Whether the scheduler has a thread as it is to have it.
    fn is_its(&self, thread: &Thread) -> bool {
        self.is_given(thread) && thread.policy == policy::EXT && thread.narrowed.is_none()
    }

    /// Makes threads of a VM the scheduler's, unless they have ended. The policy of each comes first: a thread that it
    /// starts between the two changes has that, and is found by it. All of them are recorded before one is changed.
    fn give(&mut self, undo: &mut Undo, pid: u32, threads: &[&Thread]) -> anyhow::Result<()> {
        let is_heir = |thread: &&&Thread| thread.policy == policy::EXT && !self.is_given(thread);
        let heirs: Vec<u32> = threads.iter().filter(is_heir).map(|thread| thread.tid).collect();
        let had = inherited(undo, pid, &heirs);
        let each = threads.iter().flat_map(|thread| {
            let tid = thread.tid;
            let cpus = thread.narrowed.as_ref();
            let narrowed = cpus.map(|set| (Target::Affinity { tid }, cpus::list(set)));
            let taken = (Target::Policy { tid }, policy::EXT.to_string());
            std::iter::once(taken).chain(narrowed)
        });
        let done = undo.adopt(&had, &each.collect::<Vec<_>>());
        // Another error may come after a part of the changes.
        if !done.as_ref().is_err_and(is_of_journal) {
            let of = |thread: &&Thread| (thread.tid, Given { pid, start: thread.start });
            self.given.extend(threads.iter().map(of));
        }
        done
    }

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
        let is_heir = |tid: &u32| self.host.scheduling_policy(*tid) == Some(policy::EXT);
        let heirs: Vec<u32> = tids.iter().copied().filter(is_heir).collect();
        if heirs.is_empty() {
            return Ok(());
        }
        let (starters, mut result) = (undo.starters(pid), Ok(()));
        for tid in heirs {
            match policy::set(tid, starters.before(tid).policy) {
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
        let outside = &self.outside.vms;
        Ok(Document::new(cpus, &self.scheduler, &report, &self.vms, &self.refused, outside))
    }
}

/// What is worth a report if it changes: VMs start and end threads all the time.
fn shown(vms: &[(VmProcess, Vm)]) -> Vec<(u32, u32, Gang, u32)> {
    vms.iter().map(|(_, vm)| (vm.pid, vm.vcpus, vm.gang, vm.weight)).collect()
}

/// What these threads have from one of the VM's that started them, and what they would have otherwise.
fn inherited(undo: &Undo, pid: u32, heirs: &[u32]) -> Vec<(Target, String, String)> {
    if heirs.is_empty() {
        return Vec::new();
    }
    let starters = undo.starters(pid);
    let of = |tid: u32| {
        let before = starters.before(tid);
        let has = cpus::list(&before.has);
        let cpus = before.cpus.map(|cpus| (Target::Affinity { tid }, cpus::list(&cpus), has));
        let policies = (before.policy.to_string(), policy::EXT.to_string());
        std::iter::once((Target::Policy { tid }, policies.0, policies.1)).chain(cpus)
    };
    heirs.iter().copied().flat_map(of).collect()
}

fn is_of_journal(e: &anyhow::Error) -> bool {
    e.downcast_ref::<Error>().is_some_and(Error::is_of_journal)
}
