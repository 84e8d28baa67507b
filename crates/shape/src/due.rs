// SPDX-License-Identifier: MIT OR Apache-2.0
//! By how much a VM's own weight is raised whose vCPUs have unequal weights, so that the VM gets what is due
//! to it (ours; the dissertation's section 5.4 leaves a VM's weight as it is).
//!
//! A vCPU that can use the time that its siblings leave has only its own part of the VM's weight, and not of
//! the CPUs. And on each CPU vCPUs' weights are a part of the VM's, and what a part gets beside a neighbour
//! grows less than the part does. So without this the VM gets less than its weight's part of the host.

/// Of so many periods, a round, the first have the weights that were there before, to measure what the VM
/// gets with them.
pub const ROUND: u32 = 100;
pub const OWN: u32 = 5;
/// After so many periods the VM's own weight is corrected.
pub const BLOCK: u32 = 3;

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

    /// Whether a VM has its own weights in a period, and whether it is corrected at its end, by the period's
    /// number.
    pub fn at(period: u32) -> (bool, bool) {
        let number = period % ROUND;
        let is_own = number < OWN;
        (is_own, !is_own && number % BLOCK == BLOCK - 1)
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
    /// it waits for more, and no less CPU time than with its own weights.
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

    /// Its part of the host's CPUs, or what it had with its own weights where that was more, as far as it wants so
    /// much. Where its part is not known it is the part of what it wants that it had.
    fn of(&self, got: &Got) -> Option<f64> {
        let wanted = got.wanted_ns() as f64 / got.wall_ns.max(1) as f64;
        let share = self.before.share()?;
        Some(match self.cpus > 0.0 {
            true => wanted.min(self.cpus.max(self.before.cpus())),
            false => wanted * share,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn got(on_cpu: f64, waited: f64) -> Got {
        let ns = |part: f64| (part * 1e9) as u64;
        Got { on_cpu_ns: ns(on_cpu), waited_ns: ns(waited), wall_ns: 1_000_000_000 }
    }

    #[test]
    fn who_has_all_it_wants_is_not_raised() {
        let mut due = Due::new(2.0);
        due.period(&got(2.0, 0.0), true);
        for _ in 0..9 {
            due.period(&got(0.3, 0.002), false);
            due.correct();
        }
        assert_eq!(due.raised(100), 100);
    }

    #[test]
    fn who_wants_more_than_before_is_not_raised_beyond_its_part() {
        let mut due = Due::new(1.0);
        due.period(&got(0.9, 0.1), true);
        for _ in 0..9 {
            due.period(&got(1.1, 0.9), false);
            due.correct();
        }
        assert_eq!(due.raised(100), 100, "1.00 CPUs are its part");
        let mut had_more = Due::new(1.0);
        had_more.period(&got(1.5, 0.1), true);
        had_more.period(&got(1.25, 0.75), false);
        had_more.correct();
        assert_eq!(had_more.raised(100), 120);
    }

    #[test]
    fn what_nothing_is_known_of_stays() {
        let mut due = Due::new(0.0);
        due.period(&got(0.5, 1.0), false);
        due.correct();
        assert_eq!(
            (due.raised(100), due.since_cpus()),
            (100, None),
            "no period with its own weights"
        );
    }

    proptest! {
        /// A VM that gets a part of what it wants in proportion to its weight comes to what is due, where a
        /// raise of four times is enough for that.
        #[test]
        fn it_comes_to_what_is_due(cpus in 0.5..3.0f64, gets in 0.3..0.99f64) {
            let wants = 4.0;
            let mut due = Due::new(cpus);
            due.period(&got(0.1, wants - 0.1), true);
            for _ in 0..40 {
                let is = cpus * gets * due.raised(1000) as f64 / 1000.0;
                due.period(&got(is.min(wants), wants - is.min(wants)), false);
                due.correct();
                prop_assert!((1000..=4000).contains(&due.raised(1000)));
            }
            let is = cpus * gets * due.raised(1000) as f64 / 1000.0;
            prop_assert!((is / cpus - 1.0).abs() < 0.01, "{is} of {cpus}");
        }
    }
}
