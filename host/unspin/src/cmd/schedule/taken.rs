// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which VMs are taken: looks for those that started or ended, and gives their threads to the scheduler.

use super::document::Document;
use super::fit::{Fit, Seen, Thread};
use super::Args;
use crate::out;
use crate::undo::Undo;
use crate::vms;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use unspin_host::journal::{Error, Target};
use unspin_host::{cpus, policy, Groups, Host, Tree, VmProcess};
use unspin_schedule::{Gang, Scheduler, Vm};

pub struct Taking<'a> {
    args: &'a Args,
    host: &'a Host,
    tree: Tree,
    cpus: BTreeSet<u32>,
    scheduler: Scheduler,
    /// Threads that have been given to the scheduler, by their ids.
    given: BTreeMap<u32, Given>,
    /// VMs whose threads could not be given to it, by process and start time, and why. They are not tried again.
    failed: BTreeMap<(u32, Option<u64>), String>,
    vms: Vec<(VmProcess, Vm)>,
    refused: Vec<(VmProcess, String)>,
}

/// Whose thread it is, when it started, and the policy that it had before.
struct Given {
    pid: u32,
    start: Option<u64>,
    policy: i32,
}

impl<'a> Taking<'a> {
    pub fn new(
        args: &'a Args,
        host: &'a Host,
        cpus: BTreeSet<u32>,
        scheduler: Scheduler,
    ) -> Taking<'a> {
        let tree = Tree::at(host, &args.cgroups);
        let (given, failed) = (BTreeMap::new(), BTreeMap::new());
        let (vms, refused) = (Vec::new(), Vec::new());
        Taking { args, host, tree, cpus, scheduler, given, failed, vms, refused }
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
        self.scheduler.report()?;
        let all = vms::processes(self.host)?;
        let gangs = self.named(&all, &self.args.gang)?;
        let chosen = self.chosen(&all)?;
        let groups = Groups::of(&self.tree, self.host, &all);
        let (mut vms, mut refused) = (Vec::new(), Vec::new());
        for process in chosen {
            let (host, tree, cpus) = (self.host, &self.tree, &self.cpus);
            let seen = Seen { host, tree, groups: &groups, cpus };
            let fit = self.may_take(&process).and_then(|()| Fit::of(&seen, &process));
            let gang = self.gang(gangs.contains(&process.pid));
            match fit.and_then(|fit| self.take(undo, &process, &fit, gang)) {
                Ok(vm) => vms.push((process, vm)),
                Err(why) => refused.push((process, why)),
            }
        }
        let is_there = |pid: u32| vms.iter().any(|(process, _)| process.pid == pid);
        // Of VMs that are refused now, some threads may have been given before the error.
        let known = self.vms.iter().map(|(process, _)| process.pid);
        let known = known.chain(self.given.values().map(|of| of.pid));
        let left: BTreeSet<u32> = known.filter(|pid| !is_there(*pid)).collect();
        for pid in left {
            self.leave(pid)?;
        }
        let changed = vms != self.vms || refused != self.refused;
        (self.vms, self.refused) = (vms, refused);
        Ok(changed)
    }

    fn gang(&self, is_declared: bool) -> Gang {
        match (self.args.no_gangs, is_declared) {
            (true, _) => Gang::Never,
            (_, true) => Gang::Always,
            _ => Gang::Auto,
        }
    }

    /// The processes of VMs that are named. One that is not there is an error only before any VM is taken: it
    /// may have ended since.
    fn named(&self, all: &[VmProcess], names: &[OsString]) -> anyhow::Result<BTreeSet<u32>> {
        let found = names.iter().map(|vm| vms::find_process(all.to_vec(), self.host, vm));
        let found = found.filter(|vm| vm.is_ok() || self.vms.is_empty());
        found.map(|vm| vm.map(|vm| vm.pid)).collect()
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
        gang: Gang,
    ) -> Result<Vm, String> {
        let key = (process.pid, self.host.start_time(process.pid));
        if let Some(why) = self.failed.get(&key) {
            return Err(why.clone());
        }
        let threads: BTreeMap<u32, u32> =
            fit.threads.iter().map(|thread| (thread.tid, thread.unit)).collect();
        let vm = Vm { weight: fit.weight, gang, vcpus: fit.vcpus, pid: process.pid, threads };
        self.scheduler.set(&vm).map_err(|e| e.to_string())?;
        self.give_back(|tid, of| of.pid == vm.pid && !vm.threads.contains_key(&tid));
        for thread in &fit.threads {
            let start = self.host.start_time(thread.tid);
            let is_given = self.given.get(&thread.tid).is_some_and(|of| of.start == start);
            if is_given && thread.policy == policy::EXT && thread.narrowed.is_none() {
                continue;
            }
            let policy = match (thread.policy, self.given.get(&thread.tid)) {
                (policy::EXT, Some(of)) if is_given => of.policy,
                // It was started by a thread that was taken.
                (policy::EXT, _) => libc::SCHED_OTHER,
                (other, _) => other,
            };
            // It is known before: an error may come after a part of the change.
            self.given.insert(thread.tid, Given { pid: vm.pid, start, policy });
            if let Err(e) = give(undo, thread, policy) {
                let why = format!("{e:#}");
                self.failed.insert(key, why.clone());
                return Err(why);
            }
        }
        Ok(vm)
    }

    /// These threads get their policies back, if they are still there, and are given no longer.
    fn give_back(&mut self, which: impl Fn(u32, &Given) -> bool) {
        let host = self.host;
        self.given.retain(|tid, of| {
            if !which(*tid, of) {
                return true;
            }
            if host.start_time(*tid) == of.start
                && host.scheduling_policy(*tid) == Some(policy::EXT)
            {
                let _ = policy::set(*tid, of.policy);
            }
            false
        });
    }

    /// A VM that ended, or is not or no longer to be taken: its threads, if there are any, are ordinary ones again.
    fn leave(&mut self, pid: u32) -> anyhow::Result<()> {
        self.give_back(|_, of| of.pid == pid);
        self.scheduler.remove(pid)?;
        Ok(())
    }

    pub fn show(&self, json: bool) -> anyhow::Result<()> {
        let report = self.scheduler.report()?;
        let document =
            Document::new(&self.cpus, &self.scheduler, &report, &self.vms, &self.refused);
        match json {
            true => out::json(&document),
            false => out::print(&document.text()),
        }
    }
}

/// Makes the thread the scheduler's, unless it has ended. Its policy without the scheduler is `before`.
fn give(undo: &mut Undo, thread: &Thread, before: i32) -> anyhow::Result<()> {
    let tid = thread.tid;
    // What is restored later is the policy that it has now.
    if thread.policy == policy::EXT && policy::set(tid, before).is_err() {
        return Ok(());
    }
    let narrowed = thread.narrowed.iter().map(|set| (Target::Affinity { tid }, cpus::list(set)));
    let taken = (Target::Policy { tid }, policy::EXT.to_string());
    let wanted: Vec<(Target, String)> = narrowed.chain([taken]).collect();
    match undo.change(&wanted) {
        Err(e) if !has_ended(&e) => Err(e),
        _ => Ok(()),
    }
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
