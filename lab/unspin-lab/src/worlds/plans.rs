// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans of worlds: each run of the usual plan once, in another world.

use super::inputs::{Inputs, ERROR};
use crate::exit::said;
use crate::load::{Loaded, Select};
use anyhow::bail;
use unspin_scenario::plan::{HostCosts, Plan, Run};
use unspin_scenario::result::{World, WorldDesign};
use unspin_sim::{Host, Kernel};

/// The worlds to simulate: places of all inputs, from 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Design {
    pub design: WorldDesign,
    pub points: Vec<Vec<f64>>,
}

/// The source of the plans of worlds.
pub struct Source<'a> {
    pub loaded: &'a Loaded,
    pub inputs: &'a Inputs,
    /// The plan with the usual values and all repeats.
    pub usual: &'a Plan,
    pub select: &'a Select,
}

impl Source<'_> {
    /// The runs of a world: each run of the usual plan once.
    pub fn runs(&self) -> Vec<&Run> {
        let runs = || self.usual.runs.iter().filter(|r| !r.alone);
        let first = runs().map(|r| r.repeat).min().unwrap_or(0);
        runs().filter(|r| r.repeat == first).collect()
    }

    /// World number `index` of the design on `kernel`: its description for records, and its plan or
    /// the reason why it is impossible.
    pub fn world(&self, d: &Design, index: usize, kernel: Kernel) -> (World, Result<Plan, String>) {
        let at = &d.points[index];
        let seed = self.inputs.seed(at, self.loaded.scenario.seed);
        let world = World {
            design: d.design,
            index: index as u32,
            of: d.points.len() as u32,
            usual_hash: self.usual.scenario_hash.clone(),
            inputs: self.inputs.written(at, seed),
            error: self.inputs.has_error().then_some(ERROR),
        };
        let plan = self.plan(at, seed, kernel).map_err(|e| said(&e));
        (world, plan)
    }

    fn plan(&self, at: &[f64], seed: u64, kernel: Kernel) -> anyhow::Result<Plan> {
        let mut loaded = self.loaded.in_world(&self.inputs.of_scenario(at))?;
        let scenario = &mut loaded.scenario;
        (scenario.repeats, scenario.seed, scenario.measure.alone) = (1, seed, false);
        let select = Select { repeats: None, ..self.select.clone() };
        let mut plan = loaded.plan(&select)?;
        let usual = self.runs();
        let same = |(run, usual): (&Run, &&Run)| {
            (&run.arm.name, &run.baseline, &run.inject)
                == (&usual.arm.name, &usual.baseline, &usual.inject)
        };
        if plan.runs.len() != usual.len() || !plan.runs.iter().zip(&usual).all(same) {
            bail!("a range changes the list of runs; ranges may not change arms or sweep sizes");
        }
        for (run, usual) in plan.runs.iter_mut().zip(usual) {
            (run.id, run.repeat) = (usual.id, usual.repeat);
        }
        let own = Host::of_plan(&plan, kernel).costs;
        let mut drawn = self.inputs.costs(at, &own);
        merge(&mut plan, &mut drawn);
        Ok(plan)
    }
}

/// Adds costs drawn from the model's ranges to those of the scenario.
fn merge(plan: &mut Plan, drawn: &mut HostCosts) {
    for key in HostCosts::KEYS.iter().copied() {
        if let Some(cycles) = drawn.named(key).and_then(|c| *c) {
            if let Some(cost) = plan.host.costs.named(key) {
                cost.get_or_insert(cycles);
            }
        }
    }
}
