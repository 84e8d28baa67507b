// SPDX-License-Identifier: MIT OR Apache-2.0
//! By how much a VM's own weight is raised whose vCPUs have unequal weights, so that the VM gets what is due
//! to it (ours; the dissertation's section 5.4 leaves a VM's weight as it is).
//!
//! A vCPU that can use the time that its siblings leave has only its own part of the VM's weight, and not of
//! the CPUs. And on each CPU vCPUs' weights are a part of the VM's, and what a part gets beside a neighbour
//! grows less than the part does. So without this the VM gets less than its weight's part of the host.

/// A VM's weight is raised by at most this factor.
pub const RAISE_MAX: f64 = 4.0;
/// By so much at a time, and lowered again.
const STEP: f64 = 1.2;
/// A VM that waits for less of the time that it wants has all it wants: nothing is corrected by it.
const WAITS_MIN: f64 = 0.01;

/// What a vCPU, or those of a VM together, had in a time, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Got {
    pub on_cpu_ns: u64,
    /// Ready for a CPU, and without one.
    pub waited_ns: u64,
    /// That passed.
    pub wall_ns: u64,
}

impl Got {
    /// What vCPUs did together in the same time.
    pub fn together(vcpus: &[Got]) -> Got {
        let mut all = Got::default();
        vcpus.iter().for_each(|got| all.add(got));
        Got { wall_ns: all.wall_ns / vcpus.len().max(1) as u64, ..all }
    }

    fn add(&mut self, more: &Got) {
        self.on_cpu_ns += more.on_cpu_ns;
        self.waited_ns += more.waited_ns;
        self.wall_ns += more.wall_ns;
    }

    fn wanted_ns(&self) -> u64 {
        self.on_cpu_ns + self.waited_ns
    }

    /// Of the time that it wanted a CPU, the part in which it had one; `None` where it wanted none.
    fn share(&self) -> Option<f64> {
        (self.wanted_ns() > 0).then(|| self.on_cpu_ns as f64 / self.wanted_ns() as f64)
    }

    /// What it would have got if it had always wanted a CPU: the part that it got of the time in which it
    /// did.
    pub fn due_ns(&self) -> u64 {
        (self.wall_ns as f64 * self.share().unwrap_or(1.0)) as u64
    }

    /// CPU time per time.
    pub fn cpus(&self) -> f64 {
        self.on_cpu_ns as f64 / self.wall_ns.max(1) as f64
    }
}

/// What a VM got, and by how much its weight is raised.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    /// The VM's part of the host's CPUs by its weight, if all VMs want what they can get; 0: not known.
    cpus: f64,
    raise: f64,
    before: Got,
    since: Got,
    /// Of `since` what is not corrected by yet.
    block: Got,
}

impl Due {
    /// `cpus`: the VM's part of the host's CPUs by its own weight, if all VMs want what they can get; 0 where
    /// that is not known.
    pub fn new(cpus: f64) -> Due {
        let none = Got::default();
        Due { cpus, raise: 1.0, before: none, since: none, block: none }
    }

    /// From now on it is measured anew what it gets.
    pub fn begin(&mut self) {
        *self = Due { raise: self.raise, ..Due::new(self.cpus) };
    }

    /// What it got in a period, with its own weights (`is_own`) or with others.
    pub fn period(&mut self, got: &Got, is_own: bool) {
        match is_own {
            true => self.before.add(got),
            false => {
                self.since.add(got);
                self.block.add(got);
            }
        }
    }

    /// Corrects by what it got since this was called last: so that it gets its part of the host's CPUs while
    /// it waits for more, and no less of the time that it wants than it did with its own weights.
    pub fn correct(&mut self) {
        let block = std::mem::take(&mut self.block);
        let waits = block.share().is_some_and(|share| share < 1.0 - WAITS_MIN);
        if let Some(due) = self.of(&block).filter(|_| waits) {
            let is = block.cpus().max(f64::MIN_POSITIVE);
            self.raise = (self.raise * (due / is).clamp(1.0 / STEP, STEP)).clamp(1.0, RAISE_MAX);
        }
    }

    /// A weight of the VM, or one of those that stand for it, as it is corrected now.
    pub fn raised(&self, weight: u64) -> u64 {
        (weight as f64 * self.raise).round() as u64
    }

    /// What it got with its own weights, and with others, since [`Due::begin`].
    pub fn before(&self) -> &Got {
        &self.before
    }

    /// See [`Due::before`].
    pub fn since(&self) -> &Got {
        &self.since
    }

    /// What was due to it since [`Due::begin`] with weights that were not its own, in CPUs; `None` where that
    /// is not known.
    pub fn since_cpus(&self) -> Option<f64> {
        self.of(&self.since)
    }

    fn of(&self, got: &Got) -> Option<f64> {
        let wanted = got.wanted_ns() as f64 / got.wall_ns.max(1) as f64;
        let as_before = wanted * self.before.share()?;
        Some(as_before.max(self.cpus.min(wanted)))
    }
}
