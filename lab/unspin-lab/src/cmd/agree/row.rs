// SPDX-License-Identifier: MIT OR Apache-2.0
//! A comparison: measured and simulated figures of an arm at a point, relative to the baseline.

use std::collections::BTreeMap;
use unspin_report::median;
use unspin_scenario::plan::Run;

/// Performance and inefficiency agree if they differ by at most this.
pub const AGREES: f64 = 0.10;

/// Whether the simulator's authors knew the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Drawn by a seed, and measured before it was simulated.
    HeldOut,
    /// Unknown.
    Given,
    /// It was known when the simulator was written.
    Known,
}

/// The subject of a comparison: one arm at one point of one kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub kind: Kind,
    pub scenario: String,
    /// Whether it is of machine `threads`, which compares locks.
    pub threads: bool,
    pub kernel: String,
    pub cgroup: u8,
    pub profile: String,
    pub vms: u32,
    pub vcpus: u32,
    /// The lock under which it is compared, if locks are swept.
    pub lock: String,
    pub arm: String,
}

#[derive(Debug, Clone, Default)]
pub struct Pair {
    pub measured: Vec<Figures>,
    pub simulated: Vec<Figures>,
    pub is_baseline: bool,
    /// Units per second in each world, or with each seed.
    pub worlds: BTreeMap<u32, f64>,
    /// Place of the model's own error in its range in each world, from 0 to 1; empty if the
    /// scenario names its own ranges, or if only seeds differ.
    pub errors: BTreeMap<u32, f64>,
    /// A run of it.
    pub run: Option<Run>,
}

#[derive(Debug, Clone, Copy)]
pub struct Figures {
    pub units_per_s: f64,
    /// Share of CPU time; `None` if the module was off.
    pub inefficiency: Option<f64>,
}

pub fn speed(all: &[Figures]) -> Option<f64> {
    median(&all.iter().map(|f| f.units_per_s).collect::<Vec<_>>())
}

pub fn waste(all: &[Figures]) -> Option<f64> {
    median(&all.iter().filter_map(|f| f.inefficiency).collect::<Vec<_>>())
}

/// One line of the table.
pub struct Row<'a> {
    pub key: &'a Key,
    pub run: Option<&'a Run>,
    pub performance: (f64, f64),
    pub inefficiency: Option<(f64, f64)>,
    pub is_baseline: bool,
}

impl Row<'_> {
    pub fn performance_agrees(&self) -> bool {
        (self.performance.0 - self.performance.1).abs() <= AGREES
    }

    /// Whether the prediction that nothing changes agrees.
    pub fn no_change_agrees(&self) -> bool {
        (self.performance.0 - 1.0).abs() <= AGREES
    }

    pub fn inefficiency_agrees(&self) -> bool {
        self.inefficiency.is_none_or(|(a, b)| (a - b).abs() <= AGREES)
    }
}

pub fn rows<'a>(pairs: &'a BTreeMap<Key, Pair>) -> Vec<Row<'a>> {
    let baseline = |key: &Key| {
        let same = |k: &Key| Key { arm: key.arm.clone(), ..k.clone() } == *key;
        let (_, pair) = pairs.iter().find(|(k, p)| p.is_baseline && same(k))?;
        Some((speed(&pair.measured)?, speed(&pair.simulated)?))
    };
    let row = |(key, pair): (&'a Key, &'a Pair)| {
        let (measured, simulated) = baseline(key).filter(|(a, b)| *a > 0.0 && *b > 0.0)?;
        Some(Row {
            key,
            run: pair.run.as_ref(),
            performance: (speed(&pair.measured)? / measured, speed(&pair.simulated)? / simulated),
            inefficiency: waste(&pair.measured).zip(waste(&pair.simulated)),
            is_baseline: pair.is_baseline,
        })
    };
    pairs.iter().filter_map(row).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn pair(measured: f64, simulated: f64, is_baseline: bool) -> Pair {
        let figures = |units_per_s| vec![Figures { units_per_s, inefficiency: Some(0.1) }];
        let worlds = BTreeMap::from([(0, simulated)]);
        Pair {
            measured: figures(measured),
            simulated: figures(simulated),
            is_baseline,
            worlds,
            errors: BTreeMap::new(),
            run: Some(Run::new(Vec::new(), 2, 4)),
        }
    }

    pub fn key(arm: &str) -> Key {
        let (kernel, profile) = ("6.12".to_string(), "ebizzy".to_string());
        let (lock, arm) = (String::new(), arm.to_string());
        Key {
            kind: Kind::Given,
            scenario: "s-1".to_string(),
            threads: false,
            kernel,
            cgroup: 0,
            profile,
            vms: 2,
            vcpus: 4,
            lock,
            arm,
        }
    }
}
