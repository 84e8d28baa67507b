// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares bands over worlds of the model's own costs with measurements: how many cover them, and
//! their scores.

use super::count::Job;
use super::row::{rows, Key, Pair, Row};
use crate::worlds::time::{self, length_ms};
use crate::worlds::{Inputs, ERROR};
use std::collections::BTreeMap;
use std::time::Instant;
use unspin_report::{median, off_by_model_error};
use unspin_scenario::plan::{HostModel, Run};
use unspin_scenario::result::ModelError;
use unspin_sim::{simulate, Costs, Host};
use unspin_worlds::{covers, interval_score, point, Band};

/// Seed of the sample of worlds. All points have the same worlds, and no other command uses them.
const SEED: u64 = 0;

/// The model for the ranges of a host: the emulated computer, or a server.
fn model(host: &Host) -> HostModel {
    match host.costs == Costs::LAB || host.costs == Costs::LAB_EEVDF {
        true => HostModel::Lab,
        false => HostModel::Server,
    }
}

/// Jobs of one run in `worlds` worlds, which are the same for all arms.
pub(super) fn jobs(key: &Key, host: &Host, run: &Run, worlds: u32) -> Vec<Job> {
    let inputs = Inputs::of_model(model(host));
    let job = |world| {
        let at = point(world, inputs.all.len(), SEED);
        let error = inputs.error(&at);
        let costs = host.costs.with(&inputs.costs(&at, &host.costs));
        let run = Run { seed: inputs.seed(&at, SEED), ..run.clone() };
        Job { key: key.clone(), world, error, host: Host { costs, ..host.clone() }, run }
    };
    (0..worlds).map(job).collect()
}

/// Number of runs that are timed before the total time is reported.
const TIMED: usize = 6;

/// Reports how long all jobs take, estimated from a few of them.
pub(super) fn say_time(jobs: &[Job]) -> anyhow::Result<()> {
    let (since, mut timed) = (Instant::now(), 0);
    for job in jobs.iter().step_by((jobs.len() / TIMED).max(1)) {
        // Errors of the simulation are reported when it is run.
        let _ = simulate(&job.host, &job.run);
        timed += length_ms(&job.run);
    }
    let all: u64 = jobs.iter().map(|job| length_ms(&job.run)).sum();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let parts = all as f64 / timed.max(1) as f64 / cpus as f64;
    let takes = since.elapsed().as_secs_f64() * parts;
    let what = format!("{} runs", jobs.len());
    Ok(time::say(&what, takes, cpus, "use fewer worlds, or fewer files")?)
}

/// An arm's measured ratio, and its band.
pub(super) struct Judged<'a> {
    pub key: &'a Key,
    pub measured: f64,
    pub band: Band,
    /// Median and standard deviation of the logarithms of the worlds' ratios, without the model's error.
    pub costs_alone: (f64, f64),
    /// Whether the model's error was fitted on arms of its kind.
    pub is_familiar: bool,
}

impl Judged<'_> {
    pub fn covers(&self) -> bool {
        covers(self.band.p05, self.band.p95, self.measured)
    }

    pub fn score(&self) -> f64 {
        interval_score(self.band.p05, self.band.p95, self.measured)
    }
}

/// Arms other than baselines that have a band and did any work when measured.
pub(super) fn judged(pairs: &BTreeMap<Key, Pair>) -> Vec<Judged<'_>> {
    let of = |row: Row<'_>| {
        let same = |k: &Key| Key { arm: row.key.arm.clone(), ..k.clone() } == *row.key;
        let (key, arm) = pairs.get_key_value(row.key)?;
        let base = pairs.iter().find(|(k, p)| p.is_baseline && same(k)).map(|(_, p)| p)?;
        let run = arm.run.as_ref()?;
        let pure = |world: &u32| {
            let ratio = (arm.worlds[world] / base.worlds.get(world)?).ln();
            ratio.is_finite().then_some((*world, ratio))
        };
        let pure: Vec<(u32, f64)> = arm.worlds.keys().filter_map(pure).collect();
        let with_error = |(world, ratio): &(u32, f64)| {
            let at = arm.errors.get(world);
            ratio + at.map_or(0.0, |at| off_by_model_error(&ERROR, run, *ratio, *at))
        };
        let outcomes: Vec<f64> = pure.iter().map(with_error).collect();
        let band = Band::of(&outcomes)?;
        let pure: Vec<f64> = pure.into_iter().map(|(_, ratio)| ratio).collect();
        let (costs_alone, is_familiar) = (middle_and_spread(&pure)?, ModelError::is_familiar(run));
        let measured = row.performance.0;
        let counts = !row.is_baseline && measured > 0.0;
        counts.then_some(Judged { key, measured, band, costs_alone, is_familiar })
    };
    rows(pairs).into_iter().filter_map(of).collect()
}

/// Median and standard deviation.
fn middle_and_spread(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let spread = (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
    Some((median(values)?, spread))
}

#[cfg(test)]
pub mod tests {
    use super::super::row::tests::{key, pair};
    use super::*;

    pub fn with_worlds(measured: f64, worlds: &[f64], is_baseline: bool) -> Pair {
        let worlds = (0..).zip(worlds.iter().copied()).collect();
        let errors = (0..100).map(|i| (i, f64::from(i) / 100.0 + 0.005)).collect();
        Pair { worlds, errors, ..pair(measured, 100.0, is_baseline) }
    }

    #[test]
    fn bands_are_of_the_same_worlds_and_scored() {
        let base: Vec<f64> = (0..100).map(|i| 100.0 + f64::from(i)).collect();
        let times = |by: f64| base.iter().map(|x| x * by).collect::<Vec<_>>();
        let pairs = BTreeMap::from([
            (key("stock"), with_worlds(100.0, &base, true)),
            (key("hvs"), with_worlds(120.0, &times(1.2), false)),
            (key("off"), with_worlds(300.0, &times(0.8), false)),
        ]);
        let judged = judged(&pairs);
        let of = |arm: &str| judged.iter().find(|j| j.key.arm == arm).unwrap();
        assert_eq!(judged.len(), 2, "the baseline is compared with nothing");
        // The baseline differs by a factor of two between worlds, the ratio by the model's error alone.
        assert!((of("hvs").band.p50 - 1.2).abs() < 0.01 && of("hvs").covers());
        assert!(!of("off").covers() && of("off").score() > 10.0);
    }

    #[test]
    fn arms_have_the_same_worlds() {
        let run = Run::new(Vec::new(), 2, 4);
        let host = Host::lab(4, unspin_sim::Kernel::V6_12);
        let (a, b) = (jobs(&key("a"), &host, &run, 20), jobs(&key("b"), &host, &run, 40));
        for (a, b) in a.iter().zip(&b) {
            assert_eq!(
                (a.run.seed, &a.host),
                (b.run.seed, &b.host),
                "and the first of more are the same"
            );
        }
        assert_ne!(a[0].host.costs, a[1].host.costs);
    }
}
