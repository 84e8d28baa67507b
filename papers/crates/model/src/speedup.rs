// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sections 4.2 to 4.4: the scalability that follows from a profile.

use crate::{App, Sequential};
use std::fmt;

/// From this share of working units on, parallelism is high (4.3.2).
const HIGH_PARALLELISM: f64 = 0.75;
/// Number of allocation periods that are computed.
const PERIODS: usize = 400;

/// How a VM's CPU time is divided among its vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// All vCPUs get the same.
    Even,
    /// Each vCPU gets what its work needs (4.4.2).
    Matched,
}

/// The four types of table 4.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// High parallelism, blocks rarely: scales well.
    Type1 = 1,
    /// Low parallelism, blocks often: scales badly.
    Type2,
    /// High parallelism, blocks often.
    Type3,
    /// Low parallelism, blocks rarely: scales better in a VM.
    Type4,
}

impl Kind {
    /// The type's number in table 4.1.
    pub fn number(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

/// The model's prediction for an application.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    pub kind: Kind,
    /// Working units, mean over time.
    pub parallelism: f64,
    /// Relative to one core, and to one vCPU.
    pub speedup_pm: f64,
    pub speedup_vm: f64,
    /// The part of available CPU time that is used: `speedup_pm / units`, `speedup_vm / units`.
    pub efficiency_pm: f64,
    pub efficiency_vm: f64,
    /// The efficiency with a VMM that lets the VM use its time as fully as its work allows (4.4.1).
    pub efficiency_max: f64,
    /// The part of the VM's time that is spent switching idle vCPUs.
    pub switch_share: f64,
}

impl App {
    /// Length of one pass over the phases, ms.
    pub fn pass_ms(&self) -> f64 {
        self.phases.iter().map(|p| p.ms).sum()
    }

    /// Working units, mean over time (4.3.2).
    pub fn parallelism(&self) -> f64 {
        let work: f64 = self.phases.iter().map(|p| f64::from(p.threads) * p.ms).sum();
        work / self.pass_ms()
    }

    /// N - (time idling and busy-waiting) / (execution time), 4.2.2.
    pub fn speedup_pm(&self) -> f64 {
        let units = f64::from(self.units);
        let idle: f64 = self.phases.iter().map(|p| (units - f64::from(p.threads)) * p.ms).sum();
        units - idle / self.pass_ms()
    }

    /// N - N (switch overhead + unused time slice) / (time slice of the VM), 4.2.2.
    pub fn speedup_vm(&self, allocation: Allocation) -> f64 {
        let units = f64::from(self.units);
        units * (self.used_share(allocation) - self.switch_share(allocation)).max(0.0)
    }

    /// The part of the VM's time that its work uses, over many allocation periods: the program
    /// continues while every vCPU with work has time left.
    fn used_share(&self, allocation: Allocation) -> f64 {
        let units = self.units as usize;
        let slice_ms = self.period_ms * self.share;
        let mut progress = Progress { phase: 0, worker: 0, left_ms: self.phases[0].ms };
        let mut used_ms = 0.0;
        let mut budget = vec![0.0; units];
        for _ in 0..PERIODS {
            budget.fill(slice_ms);
            let mut pool_ms = slice_ms * units as f64;
            let mut wall_ms = self.period_ms;
            while wall_ms > 1e-9 {
                let threads = self.phases[progress.phase].threads as usize;
                let on = (0..threads).map(|i| (i + progress.worker) % units);
                let may = match allocation {
                    Allocation::Matched if threads > 0 => pool_ms / threads as f64,
                    Allocation::Even => on.clone().map(|u| budget[u]).fold(wall_ms, f64::min),
                    Allocation::Matched => wall_ms,
                };
                let ms = progress.left_ms.min(may).min(wall_ms);
                if ms <= 1e-9 {
                    break;
                }
                on.for_each(|u| budget[u] -= ms);
                used_ms += ms * threads as f64;
                pool_ms -= ms * threads as f64;
                wall_ms -= ms;
                progress.left_ms -= ms;
                if progress.left_ms <= 1e-9 {
                    self.next_phase(&mut progress);
                }
            }
        }
        used_ms / (slice_ms * units as f64 * PERIODS as f64)
    }

    fn next_phase(&self, progress: &mut Progress) {
        progress.phase = (progress.phase + 1) % self.phases.len();
        progress.left_ms = self.phases[progress.phase].ms;
        if progress.phase == 0 && self.sequential == Sequential::Rotating {
            progress.worker = (progress.worker + 1) % self.units as usize;
        }
    }

    /// Voluntary switches are in proportion to the work: `blocks_per_s` per second on a dedicated
    /// machine.
    fn switch_share(&self, allocation: Allocation) -> f64 {
        let work_per_s = self.speedup_pm();
        let blocks_per_cpu_s = self.blocks_per_s / work_per_s;
        self.used_share(allocation) * blocks_per_cpu_s * self.switch_us * 1e-6
    }

    /// The time slice of a thread in an allocation period, ms, and its CPU time between two blocking
    /// synchronizations: high frequency is less than one slice (4.3.2).
    pub fn blocks_often(&self) -> bool {
        let per_thread_s = self.blocks_per_s / self.parallelism();
        per_thread_s * self.period_ms * self.share > 1000.0
    }

    /// Mean of min(1, u / p) over allocation periods on a dedicated machine (4.4.1): `u` is the
    /// part of its CPU time that the application uses in a period, `p` the VM's share.
    pub fn efficiency_max(&self) -> f64 {
        let units = f64::from(self.units);
        let mut progress = Progress { phase: 0, worker: 0, left_ms: self.phases[0].ms };
        let mut sum = 0.0;
        for _ in 0..PERIODS {
            let (mut wall_ms, mut used_ms) = (self.period_ms, 0.0);
            while wall_ms > 1e-9 {
                let ms = progress.left_ms.min(wall_ms);
                used_ms += ms * f64::from(self.phases[progress.phase].threads);
                wall_ms -= ms;
                progress.left_ms -= ms;
                if progress.left_ms <= 1e-9 {
                    self.next_phase(&mut progress);
                }
            }
            let u = used_ms / (units * self.period_ms);
            sum += (u / self.share).min(1.0);
        }
        sum / PERIODS as f64
    }

    /// The complete prediction, with the VM's time divided by `allocation`. The profile must be
    /// checked ([`App::check`]).
    pub fn predict(&self, allocation: Allocation) -> Prediction {
        let units = f64::from(self.units);
        let parallelism = self.parallelism();
        let kind = match (parallelism >= HIGH_PARALLELISM * units, self.blocks_often()) {
            (true, false) => Kind::Type1,
            (false, true) => Kind::Type2,
            (true, true) => Kind::Type3,
            (false, false) => Kind::Type4,
        };
        let (speedup_pm, speedup_vm) = (self.speedup_pm(), self.speedup_vm(allocation));
        Prediction {
            kind,
            parallelism,
            speedup_pm,
            speedup_vm,
            efficiency_pm: speedup_pm / units,
            efficiency_vm: speedup_vm / units,
            efficiency_max: self.efficiency_max(),
            switch_share: self.switch_share(allocation),
        }
    }
}

/// The position of an application in its phases.
struct Progress {
    phase: usize,
    worker: usize,
    left_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Phase;

    fn app(units: u32, share: f64, period_ms: f64, phases: &[(u32, f64)]) -> App {
        let phases = phases.iter().map(|&(threads, ms)| Phase { threads, ms });
        App { period_ms, switch_us: 0.0, ..App::new("test", units, share, phases.collect()) }
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-6, "{a} {b}");
    }

    /// Section 4.2.2: 20 % of the computation sequential, 4 cores.
    #[test]
    fn amdahls_example_is_the_papers() {
        let app = app(4, 0.25, 24.0, &[(1, 20.0), (4, 20.0)]);
        let p = app.predict(Allocation::Even);
        near(p.speedup_pm, 2.5);
        near(p.efficiency_pm, 0.625);
    }

    /// Figure 4.6: 2 units of sequential and 4 of parallel work, a period of 12, half of 4 cores.
    #[test]
    fn figure_4_6_is_the_papers() {
        let conventional = app(4, 0.5, 12.0, &[(1, 2.0), (4, 1.0)]);
        let balanced = App { sequential: Sequential::Rotating, ..conventional.clone() };
        near(conventional.speedup_pm(), 2.0);
        near(conventional.speedup_vm(Allocation::Even), 2.0);
        near(balanced.speedup_vm(Allocation::Even), 4.0);
        near(conventional.speedup_vm(Allocation::Matched), 4.0);
    }

    /// Table 4.1's two features: 12 of 16 cores, and a block within a slice of 6 ms.
    #[test]
    fn the_four_types_are_told_by_their_features() {
        let kind = |threads, blocks_per_s| {
            let app = App { blocks_per_s, ..app(16, 0.25, 24.0, &[(threads, 5.0)]) };
            app.predict(Allocation::Even).kind.number()
        };
        assert_eq!([kind(12, 10.0), kind(11, 10.0)], [1, 4]);
        assert_eq!([kind(12, 12.0 / 0.006 - 1.0), kind(12, 12.0 / 0.006 + 1.0)], [1, 3]);
        assert_eq!(kind(11, 1e4), 2);
    }

    #[test]
    fn what_fills_every_period_loses_nothing_but_its_switches() {
        let app = App { blocks_per_s: 16_000.0, ..app(16, 0.25, 24.0, &[(16, 5.0)]) };
        let free = app.predict(Allocation::Even);
        near(free.speedup_vm, 16.0);
        let p = App { switch_us: 5.0, ..app }.predict(Allocation::Even);
        near(p.switch_share, 1000.0 * 5e-6);
        near(p.speedup_vm, 16.0 * (1.0 - 0.005));
    }

    #[test]
    fn longer_periods_even_out_what_changes_slowly() {
        let slow = |period_ms| app(16, 0.25, period_ms, &[(1, 48.0), (16, 48.0)]);
        assert!(slow(24.0).efficiency_max() < 0.7);
        near(slow(192.0).efficiency_max(), 1.0);
    }

    #[test]
    fn matching_never_loses() {
        for phases in [[(1, 7.0), (16, 3.0)], [(3, 2.0), (9, 11.0)], [(16, 1.0), (2, 90.0)]] {
            let app = app(16, 0.25, 24.0, &phases);
            let (even, matched) =
                (app.speedup_vm(Allocation::Even), app.speedup_vm(Allocation::Matched));
            assert!(matched >= even - 1e-9 && matched <= 16.0 + 1e-9, "{even} {matched}");
            assert!(app.efficiency_max() <= 1.0 + 1e-9);
        }
    }
}
