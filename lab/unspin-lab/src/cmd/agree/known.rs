// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measured ratios without records: one line of JSON per ratio, of scenarios in this repository.

use super::count::{Job, Times};
use super::row::{Figures, Key, Kind, Pair};
use super::{bands, measured};
use crate::exit::{unread, Usage};
use crate::load::{self, Select};
use crate::machine::sim;
use serde::Deserialize;
use std::collections::btree_map::Entry;
use std::collections::BTreeMap;
use std::path::Path;
use unspin_scenario::plan::{Plan, Run};
use unspin_scenario::Named;
use unspin_sim::Host;
use unspin_text::{read_file, shown, RESULTS_MAX};

/// A measured arm at one point.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    /// Name of the scenario.
    scenario: String,
    kernel: String,
    profile: String,
    vms: u32,
    cgroup: String,
    /// The lock under which it is compared, if the scenario sweeps locks.
    #[serde(default)]
    lock: String,
    arm: String,
    /// Throughput relative to the baseline, above 0.
    performance: f64,
    /// Share of CPU time that is wasted, if noted.
    #[serde(default)]
    inefficiency: Option<f64>,
}

/// The simulations for the ratios of `file`; adds the measured values to `pairs`.
pub(super) fn jobs(
    times: Times,
    file: &Path,
    pairs: &mut BTreeMap<Key, Pair>,
) -> anyhow::Result<Vec<Job>> {
    let shown = shown(file);
    let text = String::from_utf8_lossy(&read_file(file, RESULTS_MAX).map_err(unread)?).into_owned();
    let mut plans: BTreeMap<String, Plan> = BTreeMap::new();
    let mut jobs = Vec::new();
    for (n, line) in (1..).zip(text.lines()) {
        let wrong = |why: &str| Usage(format!("{shown}:{n}: {why}"));
        let row: Measured = serde_json::from_str(line).map_err(|e| wrong(&e.to_string()))?;
        if !(row.performance > 0.0 && row.performance.is_finite()) {
            return Err(wrong("`performance` must be a number above 0").into());
        }
        let plan = match plans.entry(row.scenario.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let loaded = load::scenario(Path::new(&row.scenario), None)?;
                new.insert(loaded.plan(&Select::default())?)
            }
        };
        let Some(run) = plan.runs.iter().find(|run| is_of(&row, run)) else {
            let why = format!("scenario {} does not have this arm at this point", row.scenario);
            return Err(wrong(&why).into());
        };
        let host = Host::of_plan(plan, sim::kernel(&row.kernel)?);
        let key = key(&row, run);
        pairs.insert(key.clone(), pair(&row, run));
        jobs.extend(match times.worlds {
            Some(worlds) => bands::jobs(&key, &host, run, worlds),
            None => measured::seeds(&key, &host, run, times.seeds),
        });
    }
    Ok(jobs)
}

fn is_of(row: &Measured, run: &Run) -> bool {
    !run.alone
        && (&run.profile, run.vm_count(), &run.arm.name) == (&row.profile, row.vms, &row.arm)
        && (run.cgroup.called(), &run.lock_group) == (row.cgroup.as_str(), &row.lock)
}

fn key(row: &Measured, run: &Run) -> Key {
    Key {
        kind: Kind::Known,
        scenario: row.scenario.clone(),
        threads: false,
        kernel: row.kernel.clone(),
        cgroup: run.cgroup as u8,
        profile: row.profile.clone(),
        vms: row.vms,
        vcpus: run.first().vcpus,
        lock: row.lock.clone(),
        arm: row.arm.clone(),
    }
}

/// A pair in which the baseline's work counts as 1.
fn pair(row: &Measured, run: &Run) -> Pair {
    let figures = Figures { units_per_s: row.performance, inefficiency: row.inefficiency };
    Pair {
        measured: vec![figures],
        is_baseline: run.arm.name == run.baseline,
        run: Some(run.clone()),
        ..Pair::default()
    }
}
