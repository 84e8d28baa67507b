// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worlds, as records name them.

use serde::{Deserialize, Serialize};

/// A world: what a scenario does not know, drawn once. Its runs have the ids that the same runs have in
/// the plan with the usual values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    pub design: WorldDesign,
    /// 0 to `of` - 1, in the design's order.
    pub index: u32,
    /// Worlds of the design.
    pub of: u32,
    /// `scenario_hash` of the plan with the usual values.
    pub usual_hash: String,
    /// What was drawn; the last is chance, which decides the seed.
    pub inputs: Vec<WorldInput>,
    /// What the model itself is wrong by, where that is known; the input [`World::MODEL_ERROR`] says
    /// how much of it a world has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ModelError>,
}

impl World {
    /// Names of inputs that are no values of a scenario.
    pub const CHANCE: &'static str = "chance";
    pub const MODEL_ERROR: &'static str = "model error";
}

/// How far measured ratios lie from the model's: the standard deviation of the difference of their
/// logarithms, `least` + `grows` × the size of the model's logarithm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelError {
    pub least: f64,
    pub grows: f64,
}

impl ModelError {
    /// Standard deviation at the model's ratio whose logarithm is `outcome`.
    pub fn deviation(&self, outcome: f64) -> f64 {
        self.least + self.grows * outcome.abs()
    }
}

/// What the worlds of a design are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorldDesign {
    /// Bands.
    Sample,
    /// Which inputs matter at all (Morris).
    Screening,
    /// What each input decides (Saltelli).
    Shares,
    /// Given in a file.
    Given,
}

/// A value that a scenario does not know, in one world.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorldInput {
    pub name: String,
    /// Its place in the range, 0 to 1.
    pub at: f64,
    /// As a scenario has it.
    pub value: String,
    /// Where the range comes from.
    pub source: String,
}
