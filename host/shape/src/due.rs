// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises a VM's own weight if its vCPUs have unequal weights, so that the VM gets its due CPU time. This is
//! an addition of this project: the dissertation's section 5.4 does not change a VM's weight.
//!
//! Two effects reduce the CPU time of such a VM below its weight's share of the host. A vCPU that can use
//! the time its siblings leave has only its own part of the VM's weight. And beside a neighbour, CPU time
//! grows less than in proportion to a vCPU's weight.

/// Length of a round, in periods. In the first periods of a round the VM has its original weights, to
/// measure what it gets with them.
pub const ROUND: u32 = 100;
pub const OWN: u32 = 5;
/// The VM's own weight is corrected after this many periods.
pub const BLOCK: u32 = 3;

/// Limit of the factor by which a VM's weight is raised.
pub const RAISE_MAX: f64 = 4.0;
/// Limit of the factor of one correction, up or down.
const STEP: f64 = 1.2;
/// A VM that waits for less than this share of the time it wants is not starved: skip the
/// correction.
const WAITS_MIN: f64 = 0.01;

/// CPU time of a vCPU, or of a VM's vCPUs together, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Got {
    pub on_cpu_ns: u64,
    /// Time in which it was ready without a CPU.
    pub waited_ns: u64,
    /// Time that passed.
    pub wall_ns: u64,
}

impl Got {
    /// The sum over vCPUs in the same time.
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

    /// The share of the time it wanted a CPU in which it had one; `None` if it wanted none.
    fn share(&self) -> Option<f64> {
        (self.wanted_ns() > 0).then(|| self.on_cpu_ns as f64 / self.wanted_ns() as f64)
    }

    /// The CPU time it would have got if it had always wanted a CPU: the share it got while it wanted
    /// one.
    pub fn due_ns(&self) -> u64 {
        (self.wall_ns as f64 * self.share().unwrap_or(1.0)) as u64
    }

    /// CPU time per wall time.
    pub fn cpus(&self) -> f64 {
        self.on_cpu_ns as f64 / self.wall_ns.max(1) as f64
    }
}

/// A VM's CPU time, and the factor by which its weight is raised.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    /// The VM's part of the host's CPUs by its weight, if all VMs use their shares; 0: unknown.
    cpus: f64,
    raise: f64,
    before: Got,
    since: Got,
    /// The part of `since` after the last correction.
    block: Got,
}

impl Due {
    /// `cpus`: the VM's part of the host's CPUs by its own weight, if all VMs use their shares; 0 if unknown.
    pub fn new(cpus: f64) -> Due {
        let none = Got::default();
        Due { cpus, raise: 1.0, before: none, since: none, block: none }
    }

    /// Starts a new measurement of its CPU time.
    pub fn begin(&mut self) {
        *self = Due { raise: self.raise, ..Due::new(self.cpus) };
    }

    /// For the period with this number: whether the VM has its original weights, and whether it is corrected
    /// at the end.
    pub fn at(period: u32) -> (bool, bool) {
        let number = period % ROUND;
        let is_own = number < OWN;
        (is_own, !is_own && number % BLOCK == BLOCK - 1)
    }

    /// Adds its CPU time in a period, with its original weights (`is_own`) or with others.
    pub fn period(&mut self, got: &Got, is_own: bool) {
        match is_own {
            true => self.before.add(got),
            false => {
                self.since.add(got);
                self.block.add(got);
            }
        }
    }

    /// Corrects by the CPU time since the last call, so that while it waits for more it gets its part of the
    /// host's CPUs, and no less CPU time than with its original weights.
    pub fn correct(&mut self) {
        let block = std::mem::take(&mut self.block);
        let waits = block.share().is_some_and(|share| share < 1.0 - WAITS_MIN);
        if let Some(due) = self.of(&block).filter(|_| waits) {
            let is = block.cpus().max(f64::MIN_POSITIVE);
            self.raise = (self.raise * (due / is).clamp(1.0 / STEP, STEP)).clamp(1.0, RAISE_MAX);
        }
    }

    /// The present correction of the VM's weight, or of a weight that stands for it.
    pub fn raised(&self, weight: u64) -> u64 {
        (weight as f64 * self.raise).round() as u64
    }

    /// Its CPU time with its original weights since [`Due::begin`].
    pub fn before(&self) -> &Got {
        &self.before
    }

    /// Its CPU time with other weights since [`Due::begin`].
    pub fn since(&self) -> &Got {
        &self.since
    }

    /// The CPU time due to it since [`Due::begin`] with other weights, in CPUs; `None` if unknown.
    pub fn since_cpus(&self) -> Option<f64> {
        self.of(&self.since)
    }

    /// Its due CPU time: its part of the host's CPUs, or what it had with its original weights if that was
    /// more, but no more than it wants. If its part is unknown, the share of what it wanted that it had.
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
        /// A VM whose CPU time is proportional to its weight reaches its due time, if a raise by four times
        /// is enough for that.
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
