// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of simulated runs, and of comparisons that agree.

use super::row::{Key, Row};
use unspin_scenario::plan::Run;
use unspin_sim::Host;

/// The number of repeats of each measured run.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Seeds, for scenarios without worlds and for locks on threads.
    pub seeds: u32,
    pub worlds: Option<u32>,
}

impl Times {
    /// A text for people.
    pub fn said(self) -> String {
        match self.worlds {
            Some(worlds) => format!("in {worlds} worlds"),
            None => format!("with {} seeds", self.seeds),
        }
    }
}

/// A run to simulate: one seed, or one world.
pub struct Job {
    pub key: Key,
    pub world: u32,
    /// Place of the model's own error in its range in this world, from 0 to 1.
    pub error: Option<f64>,
    pub host: Host,
    pub run: Run,
}

/// The number of pairs of arms of one point that differ by 5 % or more on both machines, and the
/// number of these pairs that both machines order alike.
pub fn order(rows: &[Row]) -> (usize, usize) {
    let (mut pairs, mut alike) = (0, 0);
    for (i, a) in rows.iter().enumerate() {
        for b in &rows[i + 1..] {
            let same_point = Key { arm: b.key.arm.clone(), ..a.key.clone() } == *b.key;
            let measured = a.performance.0 - b.performance.0;
            let simulated = a.performance.1 - b.performance.1;
            if same_point && measured.abs() > 0.05 && simulated.abs() > 0.05 {
                pairs += 1;
                alike += usize::from(measured.signum() == simulated.signum());
            }
        }
    }
    (pairs, alike)
}

/// How many rows agree.
pub struct Agreement {
    /// Rows other than baselines.
    pub arms: usize,
    pub performance: usize,
    pub inefficiency: usize,
    /// Rows with an inefficiency.
    pub of_inefficiency: usize,
}

impl Agreement {
    pub fn of(rows: &[&Row]) -> Agreement {
        let arms = || rows.iter().filter(|r| !r.is_baseline);
        let told = || rows.iter().filter(|r| r.inefficiency.is_some());
        Agreement {
            arms: arms().count(),
            performance: arms().filter(|r| r.performance_agrees()).count(),
            inefficiency: told().filter(|r| r.inefficiency_agrees()).count(),
            of_inefficiency: told().count(),
        }
    }
}

pub fn percent(n: usize, of: usize) -> f64 {
    100.0 * n as f64 / of.max(1) as f64
}
