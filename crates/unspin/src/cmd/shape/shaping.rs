// SPDX-License-Identifier: MIT OR Apache-2.0
//! Period after period: what vCPUs did is read, what follows is decided, and set.

use super::decide::{differ, Decision, Own, Parts, Shaper};
use super::document::{Decided, Document};
use super::place::{left_alone, Placed, Places};
use crate::exit::Cannot;
use crate::out;
use crate::span::wait;
use crate::undo::{Guard, Undo};
use crate::vms;
use crate::watch::{Sample, Source, SETTLE};
use anyhow::bail;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unspin_host::journal::Target;
use unspin_host::VmProcess;
use unspin_probe::Seen;

/// Periods of a round, and how many of them, the first, have the values that were there before.
const ROUND: u32 = 100;
const OWN: u32 = 5;
/// After so many periods the VM's own weight is corrected.
const BLOCK: u32 = 3;

/// What changes are made by; none in a dry run.
pub type Hands<'a> = Option<(&'a mut Undo, &'a mut Guard)>;

/// What was asked for.
pub struct Asked<'a> {
    /// None: all VMs.
    pub vms: &'a [OsString],
    pub parts: Parts,
    pub period: Duration,
    /// A dry run ends after a period.
    pub once: bool,
    pub json: bool,
    pub places: Places<'a>,
}

/// All VMs that are shaped.
pub struct Shaping<'a> {
    asked: Asked<'a>,
    source: &'a mut dyn Source,
    stop: &'a AtomicBool,
    vms: Vec<Shaped>,
    /// VMs that are left alone, and why.
    refused: Vec<(VmProcess, String)>,
    /// Of those another hand has set a value: they stay left alone.
    theirs: BTreeMap<u32, String>,
}

/// A VM that is shaped.
struct Shaped {
    placed: Placed,
    shaper: Shaper,
    /// The weights of its vCPUs, its own, and where latency is adapted the slices of its vCPUs.
    targets: Vec<Target>,
    /// What each of these is set to now.
    set: Vec<u64>,
    /// Of the last period, and its own weight after that.
    decisions: Vec<Decision>,
    whole: u64,
}

impl Shaped {
    fn new(placed: Placed, parts: Parts, before: Option<Shaped>) -> Shaped {
        let own = Own {
            weights: placed.vcpus.iter().map(|weight| weight.is).collect(),
            whole: placed.whole.is,
            due_cpus: placed.due_cpus,
            slices_ns: if parts.latency { placed.slices.clone() } else { Vec::new() },
        };
        let weights = placed.vcpus.iter().chain([&placed.whole]);
        let tids = placed.vm.vcpus.iter().map(|vcpu| vcpu.tid).take(own.slices_ns.len());
        let targets = weights
            .map(|weight| weight.target.clone())
            .chain(tids.map(|tid| Target::Slice { tid }))
            .collect();
        let set = [&own.weights[..], &[own.whole], &own.slices_ns].concat();
        let whole = own.whole;
        // What is due follows from who else is there.
        let is_same = |old: &Shaped| {
            let due_cpus = old.shaper.own().due_cpus;
            old.placed.vm.vcpus == placed.vm.vcpus
                && *old.shaper.own() == Own { due_cpus, ..own.clone() }
        };
        let mut shaper = match before.filter(is_same) {
            Some(old) => old.shaper,
            None => Shaper::new(parts, own),
        };
        shaper.begin();
        Shaped { placed, shaper, targets, set, decisions: Vec::new(), whole }
    }

    /// What its vCPUs did between two samples, in their order; `None` where it or one of them has ended.
    fn did(&self, before: &Sample, after: &Sample) -> Option<Vec<Seen>> {
        let vm = after.vms.iter().find(|vm| vm.process.pid == self.placed.vm.pid)?;
        let watched = vm.between(&before.seen, &after.seen)?;
        let of = |index: u32| watched.vcpus.iter().find(|(number, _)| *number == index);
        let vcpus = self.placed.vm.vcpus.iter();
        vcpus.map(|vcpu| of(vcpu.index).map(|(_, seen)| seen.clone())).collect()
    }

    /// The values that are set: of weights of vCPUs, of the VM's own, and of slices.
    fn parts_of_set(&self) -> (&[u64], u64, &[u64]) {
        let vcpus = self.placed.vcpus.len();
        (&self.set[..vcpus], self.set[vcpus], &self.set[vcpus + 1..])
    }

    /// What targets are to be set to; what is not worth setting stays.
    fn wanted(&self) -> Vec<u64> {
        let (weights, whole, slices) = self.parts_of_set();
        let mut wanted = self.set.clone();
        if self.decisions.len() != weights.len() {
            return wanted;
        }
        let vcpus = weights.len();
        let new: Vec<u64> = self.decisions.iter().map(|decision| decision.weight).collect();
        if differ(weights, &new) || self.whole != whole {
            wanted[..vcpus].copy_from_slice(&new);
            wanted[vcpus] = self.whole;
        }
        let new: Vec<u64> = self.decisions.iter().filter_map(|d| d.slice_ns).collect();
        if new.len() == slices.len() && differ(slices, &new) {
            wanted[vcpus + 1..].copy_from_slice(&new);
        }
        wanted
    }

    /// Sets what was decided, where it is worth setting.
    fn set(&mut self, undo: &mut Undo) -> anyhow::Result<()> {
        let wanted = self.wanted();
        let values = self.targets.iter().zip(self.set.iter().zip(&wanted));
        let changes: Vec<(Target, String)> = values
            .filter(|(_, (is, wanted))| is != wanted)
            .map(|(target, (_, wanted))| (target.clone(), wanted.to_string()))
            .collect();
        undo.change(&changes)?;
        self.set = wanted;
        Ok(())
    }

    /// A target that another hand has set, in words.
    fn theirs(&self, undo: &Undo) -> anyhow::Result<Option<String>> {
        for (target, set) in self.targets.iter().zip(&self.set) {
            let is = undo.read(target)?;
            if is != set.to_string() {
                return Ok(Some(format!(
                    "another hand has set {target} to {is}, which was {set}: it stays"
                )));
            }
        }
        Ok(None)
    }
}

impl<'a> Shaping<'a> {
    pub fn new(asked: Asked<'a>, source: &'a mut dyn Source, stop: &'a AtomicBool) -> Shaping<'a> {
        let (vms, refused, theirs) = (Vec::new(), Vec::new(), BTreeMap::new());
        Shaping { asked, source, stop, vms, refused, theirs }
    }

    /// Looks which VMs there are and which of them are shaped, when all have their own weights. An error
    /// where there is none.
    pub fn choose(&mut self) -> anyhow::Result<()> {
        let host = self.asked.places.host;
        let all = vms::processes(host)?;
        let chosen = match self.asked.vms {
            [] if all.is_empty() => bail!("no VM runs on this host"),
            [] => all,
            given => given
                .iter()
                .map(|vm| vms::find_process(all.clone(), host, vm))
                .collect::<anyhow::Result<_>>()?,
        };
        self.place(chosen);
        if !self.vms.is_empty() {
            return Ok(());
        }
        let why: Vec<String> = self.refused.iter().map(|(vm, why)| left_alone(vm, why)).collect();
        // What another hand does says nothing of this computer.
        match self.theirs.is_empty() {
            true => Err(Cannot(why.join("\n")).into()),
            false => bail!("{}", why.join("\n")),
        }
    }

    /// Parts VMs into those that are shaped and others, and tells of others that are new.
    fn place(&mut self, vms: Vec<VmProcess>) {
        let mut old: BTreeMap<u32, Shaped> =
            self.vms.drain(..).map(|vm| (vm.placed.vm.pid, vm)).collect();
        let before = std::mem::take(&mut self.refused);
        for vm in vms {
            let placed = match self.theirs.get(&vm.pid) {
                Some(why) => Err(why.clone()),
                None => Placed::of(&self.asked.places, &vm),
            };
            match placed {
                Ok(placed) => {
                    let parts = self.asked.parts;
                    self.vms.push(Shaped::new(placed, parts, old.remove(&vm.pid)));
                }
                Err(why) => self.refused.push((vm, why)),
            }
        }
        let new = self.refused.iter().filter(|refused| !before.contains(refused));
        if !self.asked.json && !self.vms.is_empty() {
            new.for_each(|(vm, why)| say!("unspin: {}", left_alone(vm, why)));
        }
    }

    /// Goes on with the VMs that are chosen until a signal comes; a dry run with --once ends after a period.
    pub fn run(&mut self, mut hands: Hands) -> anyhow::Result<()> {
        let result = wait(SETTLE, self.stop, &mut |_| {}).and_then(|()| self.rounds(&mut hands));
        match result {
            Err(_) if self.stop.load(Ordering::Relaxed) && hands.is_some() => self.show(false),
            Err(_) if self.stop.load(Ordering::Relaxed) => Ok(()),
            other => other,
        }
    }

    fn rounds(&mut self, hands: &mut Hands) -> anyhow::Result<()> {
        loop {
            let is_done = self.round(hands)?;
            if is_done {
                return Ok(());
            }
            if let Some((undo, _)) = hands {
                undo.put_back()?;
            }
            self.choose()?;
        }
    }

    /// Whether all is done.
    fn round(&mut self, hands: &mut Hands) -> anyhow::Result<bool> {
        let mut before = self.source.sample()?;
        for number in 0..ROUND {
            if let Some((_, guard)) = hands {
                guard.go_on()?;
            }
            wait(self.asked.period, self.stop, &mut |_| {})?;
            let after = self.source.sample()?;
            let is_own = hands.is_none() || number < OWN;
            self.decide(&before, &after, is_own, number % BLOCK == BLOCK - 1);
            before = after;
            match hands {
                None => {
                    self.show(true)?;
                    if self.asked.once {
                        return Ok(true);
                    }
                }
                Some((undo, _)) if number >= OWN - 1 => {
                    if !self.set(undo)? {
                        return Ok(false);
                    }
                }
                Some(_) => {}
            }
        }
        if hands.is_some() {
            self.show(false)?;
        }
        Ok(false)
    }

    fn decide(&mut self, before: &Sample, after: &Sample, is_own: bool, corrects: bool) {
        for vm in &mut self.vms {
            let Some(seen) = vm.did(before, after) else {
                vm.decisions.clear();
                continue;
            };
            vm.decisions = vm.shaper.period(&seen, is_own);
            vm.whole = match (is_own, corrects) {
                (false, true) => vm.shaper.correct(),
                _ => vm.shaper.whole(),
            };
        }
    }

    /// Sets what was decided. False where the round is to begin anew: a VM has ended, or another hand has
    /// set a value.
    fn set(&mut self, undo: &mut Undo) -> anyhow::Result<bool> {
        for vm in &mut self.vms {
            let pid = vm.placed.vm.pid;
            let set = vm.theirs(undo).and_then(|theirs| match theirs {
                None => vm.set(undo).map(|()| None),
                theirs => Ok(theirs),
            });
            match set {
                Ok(None) => {}
                Ok(Some(why)) => {
                    self.theirs.insert(pid, why);
                    return Ok(false);
                }
                Err(_) if self.asked.places.host.vm_process(pid).is_none() => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Shows what was decided last: all of it, or a line per VM.
    fn show(&self, all: bool) -> anyhow::Result<()> {
        let decided = self.vms.iter().map(|vm| Decided {
            placed: &vm.placed,
            shaper: &vm.shaper,
            now: vm.parts_of_set(),
            decisions: &vm.decisions,
            whole: vm.whole,
        });
        let document = Document::new(self.asked.places.host, decided, &self.refused);
        match (self.asked.json, all) {
            (true, _) => out::json(&document),
            (false, true) => out::print(&document.text()),
            (false, false) => out::print(&document.lines()),
        }
    }
}
