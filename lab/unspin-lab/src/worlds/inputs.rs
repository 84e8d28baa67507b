// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inputs that differ between worlds: the ranges of a scenario or, if it has none, of the model's
//! own costs; and chance, which decides seeds.

use crate::exit::Usage;
use crate::load::Loaded;
use unspin_guest_abi::rng::splitmix64;
use unspin_scenario::plan::{HostCosts, HostModel};
use unspin_scenario::result::{ModelError, World, WorldInput};
use unspin_scenario::{Ranges, Unknown};
use unspin_sim::{Costs, RANGES};

/// The model's own error: the most likely parameters, given the measurements of 588 known arms and
/// the predictions of 32 worlds for each (bench/model-error.py; docs/simulator.md, "Worlds").
pub const ERROR: ModelError = ModelError { least: 0.005, grows: 0.075, strange: 4.0 };

/// An input that differs between worlds.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    pub name: String,
    pub source: String,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    /// An unknown value of the scenario, with its index in [`Loaded::unknown`].
    Of(usize, Unknown),
    /// A cost of the model, as a factor.
    Cost(String, Unknown),
    ModelError,
    Chance,
}

/// All inputs that differ; the last is chance.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    pub all: Vec<Input>,
    /// Number of unknown values of the scenario, drawn or not.
    unknown: usize,
}

/// Ranges of the model's own costs.
fn default_inputs(model: HostModel) -> Vec<Input> {
    let table = match model {
        HostModel::Lab => "lab.",
        HostModel::Server => "server.",
    };
    // A test reads the file, so it has no errors.
    let ranges = Ranges::read("ranges.toml", RANGES).map_or(Vec::new(), |r| r.unknown);
    let input = |u: Unknown| {
        let key = u.path.strip_prefix(table)?.to_string();
        let (name, source) = (format!("host.{key}"), u.source.clone());
        Some(Input { name, source, kind: Kind::Cost(key, u) })
    };
    ranges.into_iter().filter_map(input).collect()
}

impl Inputs {
    /// The inputs of a scenario: its own ranges or, without any, the model's. `only` has the names
    /// of those that vary, if not all do; chance always varies.
    pub fn of(l: &Loaded, only: &[String]) -> Result<Inputs, Usage> {
        let unknown = l.unknown();
        let own = |(i, (name, u)): (usize, &(String, &Unknown))| Input {
            name: name.clone(),
            source: u.source.clone(),
            kind: Kind::Of(i, (*u).clone()),
        };
        let mut all: Vec<Input> = unknown.iter().enumerate().map(own).collect();
        if all.is_empty() {
            let mut said = l.scenario.host.costs;
            all = default_inputs(l.scenario.host.model);
            all.retain(|i| i.cost().and_then(|key| *said.named(key)?).is_none());
            all.push(model_error());
        }
        let names: Vec<&str> = all.iter().map(|i| i.name.as_str()).collect();
        if let Some(wrong) = only.iter().find(|name| !names.contains(&name.as_str())) {
            let known = names.join(", ");
            return Err(Usage(format!("--input {wrong}: no such input; inputs: {known}")));
        }
        if !only.is_empty() {
            all.retain(|i| only.contains(&i.name));
        }
        all.push(chance());
        Ok(Inputs { all, unknown: unknown.len() })
    }

    /// The inputs for the model's own costs alone, with the model's error.
    pub fn of_model(model: HostModel) -> Inputs {
        let mut all = default_inputs(model);
        all.extend([model_error(), chance()]);
        Inputs { all, unknown: 0 }
    }

    pub fn names(&self) -> Vec<String> {
        self.all.iter().map(|i| i.name.clone()).collect()
    }

    /// Whether the model's own error is among them.
    pub fn has_error(&self) -> bool {
        self.all.iter().any(|i| i.kind == Kind::ModelError)
    }

    /// Places of the unknown values of the scenario.
    pub fn of_scenario(&self, at: &[f64]) -> Vec<Option<f64>> {
        let mut places = vec![None; self.unknown];
        for (input, at) in self.all.iter().zip(at) {
            if let Kind::Of(i, _) = input.kind {
                places[i] = Some(*at);
            }
        }
        places
    }

    /// The costs in the world at `at`: `costs`, changed where the model's own costs are drawn.
    pub fn costs(&self, at: &[f64], costs: &Costs) -> HostCosts {
        let (mut own, mut drawn) = (costs.said(), HostCosts::default());
        for (input, at) in self.all.iter().zip(at) {
            if let Kind::Cost(key, u) = &input.kind {
                let factor: f64 = u.value(*at).parse().unwrap_or(1.0);
                let cycles = own.named(key).and_then(|c| *c).unwrap_or(0);
                if let Some(cost) = drawn.named(key) {
                    *cost = Some((f64::from(cycles) * factor).round() as u32);
                }
            }
        }
        drawn
    }

    /// The seed of the world at `at`.
    pub fn seed(&self, at: &[f64], of_scenario: u64) -> u64 {
        let chance = self.all.iter().zip(at).find(|(i, _)| i.kind == Kind::Chance);
        let bits = chance.map_or(0, |(_, at)| at.to_bits());
        // Limit the seed to numbers that JSON represents exactly.
        splitmix64(bits ^ splitmix64(of_scenario)) >> 12
    }

    /// Place of the model's own error in the world at `at`, if it is an input.
    pub fn error(&self, at: &[f64]) -> Option<f64> {
        self.all.iter().zip(at).find(|(i, _)| i.kind == Kind::ModelError).map(|(_, at)| *at)
    }

    /// The inputs of the world at `at`, for its records. `seed` is the seed of its runs.
    pub fn written(&self, at: &[f64], seed: u64) -> Vec<WorldInput> {
        let value = |input: &Input, at: f64| match &input.kind {
            Kind::Of(_, u) => u.value(at),
            Kind::Cost(_, u) => {
                format!("x {:.3}", u.value(at).parse::<f64>().unwrap_or(1.0))
            }
            Kind::ModelError => format!("{:+.2} sd", unspin_worlds::normal_quantile(at)),
            Kind::Chance => format!("seed {seed}"),
        };
        let written = |(input, at): (&Input, &f64)| WorldInput {
            name: input.name.clone(),
            at: *at,
            value: value(input, *at),
            source: input.source.clone(),
        };
        self.all.iter().zip(at).map(written).collect()
    }
}

fn model_error() -> Input {
    let source =
        "docs/simulator.md, worlds: how far measured arms are from the model's".to_string();
    Input { name: World::MODEL_ERROR.to_string(), source, kind: Kind::ModelError }
}

fn chance() -> Input {
    let source = "another seed of the same world".to_string();
    Input { name: World::CHANCE.to_string(), source, kind: Kind::Chance }
}

impl Input {
    /// The name of the cost that it scales.
    fn cost(&self) -> Option<&str> {
        match &self.kind {
            Kind::Cost(key, _) => Some(key),
            Kind::Of(..) | Kind::ModelError | Kind::Chance => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_ranges_are_of_costs_that_it_has() {
        Ranges::read("ranges.toml", RANGES).unwrap();
        for model in [HostModel::Lab, HostModel::Server] {
            let inputs = default_inputs(model);
            assert!(inputs.len() >= 4);
            for input in inputs {
                let Kind::Cost(key, u) = &input.kind else { panic!("{input:?}") };
                assert!(HostCosts::default().named(key).is_some(), "{key}");
                assert!(u.usual == "1.0" && !u.source.is_empty(), "{key}");
            }
        }
    }

    #[test]
    fn a_world_at_the_middle_of_a_range_has_the_models_own_cost() {
        let inputs = Inputs::of_model(HostModel::Lab);
        let mut drawn = inputs.costs(&vec![0.5; inputs.all.len()], &Costs::LAB);
        assert_eq!(drawn.yield_cycles, Some(Costs::LAB.yield_cycles));
        assert!(drawn.named("wake_cycles").unwrap().is_none(), "it has no range");
        let low = inputs.costs(&vec![0.0; inputs.all.len()], &Costs::LAB);
        assert_eq!(low.yield_cycles, Some(Costs::LAB.yield_cycles / 2));
    }

    #[test]
    fn chance_alone_decides_the_seed() {
        let inputs = Inputs::of_model(HostModel::Lab);
        let n = inputs.all.len();
        let seed = |first: f64, last: f64| {
            let mut at = vec![first; n];
            at[n - 1] = last;
            inputs.seed(&at, 1)
        };
        assert_eq!(seed(0.1, 0.7), seed(0.9, 0.7));
        assert_ne!(seed(0.1, 0.7), seed(0.1, 0.8));
    }
}
