// SPDX-License-Identifier: MIT OR Apache-2.0
//! A shaped VM: its present and its wanted settings.

use super::apart::{laid_out, Movable, Mover};
use super::decide::{differ, Decision, Own, Parts, Shaper, SLICES_FAR, WEIGHTS_FAR, WHOLE_FAR};
use super::nice;
use super::place::{Placed, Places};
use crate::undo::Undo;
use crate::watch::Sample;
use unspin_host::journal::Target;
use unspin_host::{cpus, VmProcess};
use unspin_probe::Seen;

/// The weight of a VM without one of its own. Its vCPUs' weights are relative to it.
const WHOLE: u64 = 100;

const WEIGHT_MAX: u64 = 10_000;

#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    /// Weights of its vCPUs, and its own.
    pub weights: Vec<u64>,
    pub whole: u64,
    /// Slices of its vCPUs, in ns; empty if latency is not adapted.
    pub slices: Vec<u64>,
    /// The CPU of each vCPU; empty if they are not moved, or not yet.
    pub cpus: Vec<u32>,
}

impl Values {
    /// All except the VM's own weight.
    fn of_vcpus(&self) -> (&[u64], &[u64], &[u32]) {
        (&self.weights, &self.slices, &self.cpus)
    }
}

pub struct Shaped {
    pub placed: Placed,
    pub shaper: Shaper,
    /// The decisions of the last period.
    pub decisions: Vec<Decision>,
    /// Its own weight after these.
    pub whole: u64,
    /// The wanted CPUs of its vCPUs; empty if they are not moved.
    movers: Vec<Mover>,
    /// Number of consecutive looks without a change of its vCPUs worth setting.
    pub steady: u32,
    pub is: Values,
    /// The targets that set `is`, and their texts.
    targets: Vec<Target>,
    texts: Vec<String>,
}

impl Shaped {
    /// `before`: the same VM in the last round.
    pub fn new(placed: Placed, places: &Places, parts: Parts, before: Option<Shaped>) -> Shaped {
        let own = Own {
            weights: placed.vcpus.iter().map(|weight| weight.is).collect(),
            whole: placed.whole.as_ref().map_or(WHOLE, |whole| whole.is),
            due_cpus: placed.due_cpus,
            slices_ns: if parts.latency { placed.slices.clone() } else { Vec::new() },
        };
        let is = Values {
            weights: own.weights.clone(),
            whole: own.whole,
            slices: own.slices_ns.clone(),
            cpus: Vec::new(),
        };
        let whole = own.whole;
        let before = before.filter(|old| old.placed.vm.vcpus == placed.vm.vcpus);
        let is_moved = parts.resolver && placed.cpus.is_ok();
        let steady = before.as_ref().map_or(0, |old| old.steady);
        let (old, movers) = before.map_or((None, Vec::new()), |old| (Some(old.shaper), old.movers));
        // The VM's due share depends on the other VMs.
        let is_same = |old: &Shaper| {
            let due_cpus = old.own.due_cpus;
            old.own == Own { due_cpus, ..own.clone() }
        };
        let mut shaper = match old.filter(is_same) {
            Some(old) => old,
            None => Shaper::new(parts, own),
        };
        shaper.due.begin();
        let (targets, texts) = targets(&placed, is.slices.len(), is_moved).into_iter().unzip();
        let decisions = Vec::new();
        let mut vm =
            Shaped { placed, shaper, decisions, whole, movers, steady, is, targets, texts };
        match is_moved {
            true if vm.movers.is_empty() => vm.lay_out(places),
            true => {}
            false => vm.movers.clear(),
        }
        vm
    }

    /// Whether vCPUs were added or removed since it was placed.
    pub fn has_other_vcpus(&self, now: &VmProcess) -> bool {
        now.pid == self.placed.vm.pid && now.vcpus != self.placed.vm.vcpus
    }

    /// What its vCPUs did between two samples, in their order; `None` if it or one of them has ended.
    pub fn did(&self, before: &Sample, after: &Sample) -> Option<Vec<Seen>> {
        let vm = after.vms.iter().find(|vm| vm.process.pid == self.placed.vm.pid)?;
        let watched = vm.between(&before.seen, &after.seen)?;
        let of = |index: u32| watched.vcpus.iter().find(|(number, _)| *number == index);
        let vcpus = self.placed.vm.vcpus.iter();
        vcpus.map(|vcpu| of(vcpu.index).map(|(_, seen)| seen.clone())).collect()
    }

    /// Ends `periods` periods in which its vCPUs did `seen`.
    pub fn period(&mut self, seen: &[Seen], periods: u32, is_own: bool, corrects: bool) {
        self.decisions = self.shaper.period(seen, periods, is_own);
        self.whole = match (is_own, corrects) {
            (false, true) => self.shaper.correct(),
            _ => self.shaper.whole(),
        };
        for (mover, did) in self.movers.iter_mut().zip(&self.decisions) {
            mover.period(did.need, did.latency_us, did.conflicts);
        }
    }

    /// In ns: the shortest original slice of its vCPUs, and the longest that follows from a latency (0 if
    /// none does).
    pub fn slices_ns(&self) -> Option<(u64, u64)> {
        let own_ns = *self.shaper.own.slices_ns.iter().min()?;
        let urgent = self.decisions.iter().filter(|did| did.woke);
        Some((own_ns, urgent.filter_map(|did| did.slice_ns).max().unwrap_or(0)))
    }

    /// Multiplies slices that follow a latency by this factor.
    pub fn lengthen_slices(&mut self, factor: f64) {
        for slice_ns in
            self.decisions.iter_mut().filter(|did| did.woke).filter_map(|did| did.slice_ns.as_mut())
        {
            *slice_ns = (*slice_ns as f64 * factor) as u64;
        }
    }

    pub fn movable(&mut self) -> Option<Movable<'_>> {
        let cpus = self.placed.cpus.as_ref().ok()?;
        (!self.movers.is_empty()).then_some(Movable { cpus, vcpus: &mut self.movers })
    }

    /// Places its vCPUs near their present CPUs, siblings apart.
    pub fn lay_out(&mut self, places: &Places) {
        let Ok(cpus) = &self.placed.cpus else { return };
        let now = last_cpus(places, &self.placed.vm);
        let now: Vec<u32> = now.into_iter().map(|cpu| cpu.unwrap_or(u32::MAX)).collect();
        let laid = laid_out(&now, cpus, &places.nodes).into_iter().map(Mover::new);
        match self.movers.is_empty() {
            true => self.movers = laid.collect(),
            false => self.movers.iter_mut().zip(laid).for_each(|(mover, new)| mover.cpu = new.cpu),
        }
    }

    pub fn places(&self) -> Vec<u32> {
        self.movers.iter().map(|mover| mover.cpu).collect()
    }

    /// The values to set. Values that are not worth a write stay as they are.
    fn wanted(&self) -> Values {
        let far = |far: f64| if self.shaper.parts.uncorrected { 1.0 } else { far };
        let mut wanted = self.is.clone();
        if self.decisions.len() != self.is.weights.len() {
            return wanted;
        }
        let weights: Vec<u64> = self.decisions.iter().map(|did| did.weight).collect();
        if differ(&self.is.weights, &weights, far(WEIGHTS_FAR)) {
            wanted.weights = weights;
        }
        if differ(&[self.is.whole], &[self.whole], WHOLE_FAR) {
            wanted.whole = self.whole;
        }
        let slices: Vec<u64> = self.decisions.iter().filter_map(|did| did.slice_ns).collect();
        let are_far = differ(&self.is.slices, &slices, far(SLICES_FAR));
        if slices.len() == self.is.slices.len() && are_far {
            wanted.slices = slices;
        }
        wanted.cpus = self.places();
        wanted
    }

    fn texts(&self, wanted: &Values) -> Vec<String> {
        if *wanted == self.is {
            return self.texts.clone();
        }
        // A VM without a weight of its own is raised through all its vCPUs.
        let raised = match self.placed.whole {
            Some(_) => 1.0,
            None => wanted.whole as f64 / self.shaper.own.whole as f64,
        };
        let weight = |(target, weight): (&Target, &u64)| match target {
            Target::Nice { .. } => nice::nearest(*weight as f64 * raised).to_string(),
            _ => ((*weight as f64 * raised).round() as u64).min(WEIGHT_MAX).to_string(),
        };
        // If nothing changes, nice values stay, even if they are not the nearest.
        let are_same = (wanted.whole, &wanted.weights) == (self.is.whole, &self.is.weights);
        let weights: Vec<String> = match are_same {
            true => self.texts[..wanted.weights.len()].to_vec(),
            false => self.targets.iter().zip(&wanted.weights).map(weight).collect(),
        };
        let whole = self.placed.whole.iter().map(|_| wanted.whole.to_string());
        let slices = wanted.slices.iter().map(u64::to_string);
        let cpus = wanted.cpus.iter().map(u32::to_string);
        weights.into_iter().chain(whole).chain(slices).chain(cpus).collect()
    }

    /// Sets what was decided, if it is worth setting. If another program has set one of the values to
    /// change (with `all`: any value), nothing is changed, and the result describes its value.
    pub fn set(&mut self, undo: &mut Undo, all: bool) -> anyhow::Result<Option<String>> {
        let wanted = self.wanted();
        let texts = self.texts(&wanted);
        let each = || self.targets.iter().zip(&self.texts).zip(&texts);
        for ((target, is), _) in each().filter(|((_, is), wanted)| all && is == wanted) {
            let found = undo.read(target)?;
            if found != *is {
                return Ok(Some(theirs(target, &found, is)));
            }
        }
        let changes: Vec<(Target, String, String)> = each()
            .filter(|((_, is), wanted)| is != wanted)
            .map(|((target, is), wanted)| (target.clone(), is.clone(), wanted.clone()))
            .collect();
        if let Some((target, found)) = undo.exchange(&changes)? {
            let is = changes.iter().find(|(of, ..)| *of == target).map_or("", |(_, is, _)| is);
            return Ok(Some(theirs(&target, &found, is)));
        }
        let is_same = wanted.of_vcpus() == self.is.of_vcpus();
        self.steady = if is_same { self.steady.saturating_add(1) } else { 0 };
        (self.is, self.texts) = (wanted, texts);
        Ok(None)
    }
}

fn theirs(target: &Target, found: &str, was: &str) -> String {
    format!("another program has set {target} to {found}, which was {was}; it stays")
}

/// The CPU that each of its vCPUs was on last; `None` if it has ended.
pub fn last_cpus(places: &Places, vm: &VmProcess) -> Vec<Option<u32>> {
    vm.vcpus.iter().map(|vcpu| places.host.last_cpu(vcpu.tid)).collect()
}

/// The targets of a VM and their texts: weights of its vCPUs, its own weight, slices, and CPUs.
fn targets(placed: &Placed, slices: usize, is_moved: bool) -> Vec<(Target, String)> {
    let weights = placed.vcpus.iter().chain(&placed.whole);
    let mut targets: Vec<(Target, String)> =
        weights.map(|weight| (weight.target.clone(), weight.text.clone())).collect();
    let tids = placed.vm.vcpus.iter().map(|vcpu| vcpu.tid);
    let of = |(tid, ns): (u32, &u64)| (Target::Slice { tid }, ns.to_string());
    targets.extend(tids.clone().zip(&placed.slices).take(slices).map(of));
    if is_moved {
        let allowed = placed.allowed.iter().map(cpus::list);
        targets.extend(tids.map(|tid| Target::Affinity { tid }).zip(allowed));
    }
    targets
}
