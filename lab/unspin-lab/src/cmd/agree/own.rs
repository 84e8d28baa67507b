// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worlds from the ranges that a measured scenario has.

use super::count::Job;
use super::row::Key;
use crate::load::{self, Loaded, Select};
use crate::machine::sim;
use crate::worlds::{Design, Inputs, Source};
use std::path::Path;
use unspin_scenario::plan::{Plan, Run};
use unspin_scenario::result::{Begin, WorldDesign};
use unspin_sim::Host;
use unspin_worlds::point;

/// A measured scenario with ranges.
pub(super) struct Own {
    loaded: Loaded,
    usual: Plan,
    inputs: Inputs,
    design: Design,
}

impl Own {
    /// The scenario of the records, if it is found unchanged and has ranges.
    pub fn of(begin: &Begin, worlds: u32) -> Option<Own> {
        let loaded = load::scenario(Path::new(&begin.scenario), None).ok()?;
        let usual = loaded.plan(&Select::default()).ok()?;
        if loaded.unknown().is_empty() || usual.scenario_hash != begin.scenario_hash {
            return None;
        }
        let inputs = Inputs::of(&loaded, &[]).ok()?;
        let points = (0..worlds).map(|i| point(i, inputs.all.len(), loaded.scenario.seed));
        let design = Design { design: WorldDesign::Sample, points: points.collect() };
        Some(Own { loaded, usual, inputs, design })
    }

    /// Jobs of the measured run in all possible worlds.
    pub fn jobs(&self, key: &Key, host: &Host, measured: &Run) -> anyhow::Result<Vec<Job>> {
        let kernel = sim::kernel(&key.kernel)?;
        let select = Select::default();
        let source = Source {
            loaded: &self.loaded,
            inputs: &self.inputs,
            usual: &self.usual,
            select: &select,
        };
        let what = |r: &Run| {
            let arm = r.arm.name.clone();
            (arm, r.profile.clone(), r.vms.len(), r.cgroup as u8, r.lock_group.clone())
        };
        let runs = source.runs();
        let Some(usual) = runs.iter().find(|r| what(r) == what(measured)) else {
            return Ok(Vec::new());
        };
        let job = |index: usize| {
            let (_, plan) = source.world(&self.design, index, kernel);
            let plan = plan.ok()?;
            let run = plan.runs.iter().find(|r| r.id == usual.id)?.clone();
            let host = Host { costs: host.costs.with(&plan.host.costs), ..host.clone() };
            Some(Job { key: key.clone(), world: index as u32, error: None, host, run })
        };
        let of = self.design.points.len();
        let jobs: Vec<Job> = (0..of).filter_map(job).collect();
        if jobs.len() < of {
            let impossible = of - jobs.len();
            say!(
                "note: {}, arm {}: {impossible} of {of} worlds are impossible",
                key.profile,
                key.arm
            );
        }
        Ok(jobs)
    }
}
