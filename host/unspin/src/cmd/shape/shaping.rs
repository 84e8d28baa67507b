// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop of periods: reads what vCPUs did, decides, and sets the result.

use super::apart::{resolve, Movable};
use super::decide::Parts;
use super::document::{Decided, Document};
use super::place::{left_alone, Busy, Placed, Places};
use super::vm::{last_cpus, Shaped};
use crate::cmd::written::Writer;
use crate::exit::Cannot;
use crate::fit::terminal_width;
use crate::out;
use crate::span::wait;
use crate::undo::{told, Guard, Undo};
use crate::vms;
use crate::watch::{Sample, Source, SETTLE};
use anyhow::bail;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unspin_host::journal::Back;
use unspin_host::{Groups, VmProcess};
use unspin_shape::alike;
use unspin_shape::asym::Params;
use unspin_shape::due::{Due, OWN, ROUND};

/// Every `LOOKS` periods: finds VMs that started or ended, checks for values set by other programs, and
/// writes the decisions for other commands.
const LOOKS: u32 = 25;
/// After `STEADY` looks without a change worth setting it looks only every two periods, after as many more
/// every four, and so on up to [`TOGETHER_MAX`], because each look takes CPU time from VMs.
const STEADY: u32 = 4;
const TOGETHER_MAX: u32 = 8;
/// Interval of looking for VMs while none is shaped.
const LOOK: Duration = Duration::from_secs(2);

/// The means to make changes; `None` in a dry run.
pub type Hands<'a> = Option<(&'a mut Undo, &'a mut Guard, &'a Writer)>;

pub struct Asked<'a> {
    /// Empty: all VMs.
    pub vms: &'a [OsString],
    pub parts: Parts,
    pub period: Duration,
    /// End a dry run after one period.
    pub once: bool,
    /// Wait for a VM to shape if there is none.
    pub wait: bool,
    pub json: bool,
    pub places: Places<'a>,
}

pub struct Shaping<'a> {
    asked: Asked<'a>,
    source: &'a mut dyn Source,
    stop: &'a AtomicBool,
    vms: Vec<Shaped>,
    refused: Vec<(VmProcess, String)>,
    /// VMs with a value set by another program. They stay excluded.
    theirs: BTreeMap<u32, String>,
    /// Whether all VMs of the host are shaped.
    all: bool,
}

impl<'a> Shaping<'a> {
    pub fn new(asked: Asked<'a>, source: &'a mut dyn Source, stop: &'a AtomicBool) -> Shaping<'a> {
        let (vms, refused, theirs) = (Vec::new(), Vec::new(), BTreeMap::new());
        Shaping { asked, source, stop, vms, refused, theirs, all: false }
    }

    /// Finds the VMs and decides which are shaped; all must have their original weights. An error if
    /// there is none to shape.
    pub fn choose(&mut self) -> anyhow::Result<()> {
        let host = self.asked.places.host;
        let all = vms::processes(host)?;
        let (parts, places) = (self.asked.parts, &mut self.asked.places);
        places.online = host.online_cpus();
        places.groups = Groups::of(&places.tree, host, &all);
        let by_scheduler = parts.time || parts.weight || parts.latency;
        places.sched_ext = host.sched_ext().filter(|of| of.all && by_scheduler);
        let count = all.len();
        let chosen = match self.asked.vms {
            [] if all.is_empty() && !self.asked.wait => bail!("no VM runs on this host"),
            [] => all,
            given => {
                let found = given.iter().map(|vm| vms::find_process(all.clone(), host, vm));
                found.filter(|vm| vm.is_ok() || !self.asked.wait).collect::<anyhow::Result<_>>()?
            }
        };
        self.place(chosen);
        self.all = self.vms.len() == count;
        if !self.vms.is_empty() || self.asked.wait {
            return Ok(());
        }
        let why: Vec<String> = self.refused.iter().map(|(vm, why)| left_alone(vm, why)).collect();
        // A value set by another program is not a limitation of this computer.
        match self.theirs.is_empty() {
            true => Err(Cannot(why.join("\n")).into()),
            false => bail!("{}", why.join("\n")),
        }
    }

    /// Whether the VM was named, or its user is one whose VMs are shaped by default. Any user may start a
    /// process with a VM.
    fn may_touch(&self, vm: &VmProcess) -> Result<(), String> {
        if !self.asked.vms.is_empty() {
            return Ok(());
        }
        vms::is_of_trusted(self.asked.places.host, vm, "to shape it, name it: unspin shape")
    }

    /// Divides VMs into those that are shaped and others. Reports new ones among the others.
    fn place(&mut self, vms: Vec<VmProcess>) {
        let mut old: BTreeMap<u32, Shaped> =
            self.vms.drain(..).map(|vm| (vm.placed.vm.pid, vm)).collect();
        let before = std::mem::take(&mut self.refused);
        let mut busy = Busy::new();
        for vm in vms {
            let placed = match self.theirs.get(&vm.pid) {
                Some(why) => Err(why.clone()),
                None => self
                    .may_touch(&vm)
                    .and_then(|()| Placed::of(&self.asked.places, &vm, &mut busy)),
            };
            match placed {
                Ok(placed) => {
                    let Asked { parts, places, .. } = &self.asked;
                    self.vms.push(Shaped::new(placed, places, *parts, old.remove(&vm.pid)));
                }
                Err(why) => self.refused.push((vm, why)),
            }
        }
        let new = self.refused.iter().filter(|refused| !before.contains(refused));
        if !self.asked.json && (!self.vms.is_empty() || self.asked.wait) {
            new.for_each(|(vm, why)| say!("unspin: {}", left_alone(vm, why)));
        }
    }

    /// Shapes the chosen VMs until a signal comes; a dry run with --once ends after a period.
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
            if let Some((undo, ..)) = hands {
                let back = undo.put_back()?;
                let nearly = back.iter().filter(|(_, back)| matches!(back, Back::Nearly(_)));
                let lines = nearly.filter_map(|(change, back)| told(change, back));
                lines.for_each(|line| say!("unspin: {line}"));
            }
            self.choose()?;
        }
    }

    /// Returns whether the command is done.
    fn round(&mut self, hands: &mut Hands) -> anyhow::Result<bool> {
        if self.vms.is_empty() {
            if let Some((_, guard, _)) = hands {
                guard.go_on()?;
            }
            wait(LOOK, self.stop, &mut |_| {})?;
            return Ok(false);
        }
        let mut before = self.source.sample()?;
        let mut number = 0;
        while number < ROUND {
            if let Some((_, guard, _)) = hands {
                guard.go_on()?;
            }
            let periods = self.taken_together(number);
            wait(self.asked.period * periods, self.stop, &mut |_| {})?;
            let looks = (number + periods) / LOOKS > number / LOOKS;
            // Looking for new VMs costs more than everything else, so it is done less often.
            let after = if looks { self.source.sample()? } else { self.source.again()? };
            let changed =
                |vm: &Shaped| after.vms.iter().any(|now| vm.has_other_vcpus(&now.process));
            if self.vms.iter().any(changed) {
                return Ok(false);
            }
            if hands.is_none() && self.asked.parts.resolver {
                self.vms.iter_mut().for_each(|vm| vm.lay_out(&self.asked.places));
            }
            let measures_own = !self.asked.parts.uncorrected && Due::at(number).0;
            let is_own = hands.is_none() || measures_own;
            let corrects = (number..number + periods).any(|period| Due::at(period).1);
            self.decide([&before, &after], periods, is_own, corrects);
            before = after;
            match hands {
                None => {
                    self.show(true)?;
                    if self.asked.once {
                        return Ok(true);
                    }
                }
                Some((undo, _, writer)) if number >= OWN - 1 || self.asked.parts.uncorrected => {
                    if !self.set(undo, looks)? {
                        return Ok(false);
                    }
                    if looks {
                        writer.write(self.document())?;
                    }
                }
                Some(_) => {}
            }
            number += periods;
        }
        if hands.is_some() {
            self.show(false)?;
        }
        Ok(false)
    }

    /// How many periods to take together before the next look; `number` is the period of the round.
    fn taken_together(&self, number: u32) -> u32 {
        let steady = self.vms.iter().map(|vm| vm.steady).min().unwrap_or(0);
        if number < OWN || self.asked.parts.uncorrected {
            1
        } else {
            together(steady)
        }
    }

    /// Decides from what VMs did between two samples that are `periods` periods apart.
    fn decide(&mut self, samples: [&Sample; 2], periods: u32, is_own: bool, corrects: bool) {
        for vm in &mut self.vms {
            match vm.did(samples[0], samples[1]) {
                Some(seen) => vm.period(&seen, periods, is_own, corrects),
                None => vm.decisions.clear(),
            }
        }
        if self.all && !self.asked.parts.uncorrected {
            self.lengthen_slices();
        }
        let mut all: Vec<Movable> = self.vms.iter_mut().filter_map(Shaped::movable).collect();
        resolve(&mut all, &self.asked.places.nodes, &Params::default());
    }

    /// If all VMs are shaped, slices need not be shorter than necessary.
    fn lengthen_slices(&mut self) {
        let slices = || self.vms.iter().filter_map(Shaped::slices_ns);
        let own_ns = slices().map(|(own_ns, _)| own_ns).min().unwrap_or(0);
        let longest_ns = slices().map(|(_, longest_ns)| longest_ns).max().unwrap_or(0);
        let factor = alike::lengthen(longest_ns, own_ns);
        self.vms.iter_mut().for_each(|vm| vm.lengthen_slices(factor));
    }

    /// Sets what was decided. Returns false if the round must start again, because a VM or a vCPU has
    /// ended, or another program has set a value. It checks this before any change; with `all` also values
    /// that do not change.
    fn set(&mut self, undo: &mut Undo, all: bool) -> anyhow::Result<bool> {
        for vm in &mut self.vms {
            let pid = vm.placed.vm.pid;
            match vm.set(undo, all) {
                Ok(None) => {}
                Ok(Some(why)) => {
                    self.theirs.insert(pid, why);
                    return Ok(false);
                }
                Err(e) => {
                    let now = self.asked.places.host.vm_process(pid);
                    return match now.is_none_or(|now| vm.has_other_vcpus(&now)) {
                        true => Ok(false),
                        false => Err(e),
                    };
                }
            }
        }
        Ok(true)
    }

    fn document(&self) -> Document {
        let decided = self
            .vms
            .iter()
            .map(|vm| Decided { vm, cpus: last_cpus(&self.asked.places, &vm.placed.vm) });
        Document::new(decided, &self.refused)
    }

    /// Prints all decisions, or a line per VM.
    fn show(&self, all: bool) -> anyhow::Result<()> {
        let document = self.document();
        match (self.asked.json, all) {
            (true, _) => out::json(&document),
            (false, true) => out::print(&document.text(terminal_width())),
            (false, false) => out::print(&document.lines()),
        }
    }
}

/// How many periods to take together after this many looks without a change worth setting.
fn together(steady: u32) -> u32 {
    1 << (steady / STEADY).min(TOGETHER_MAX.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_rarer_the_longer_nothing_changes() {
        let after = [0, STEADY - 1, STEADY, 2 * STEADY, 3 * STEADY, u32::MAX].map(together);
        assert_eq!(after, [1, 1, 2, 4, TOGETHER_MAX, TOGETHER_MAX]);
    }
}
