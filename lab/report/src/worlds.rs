// SPDX-License-Identifier: MIT OR Apache-2.0
//! What rows and summaries say of worlds: of values that a scenario does not know, drawn many times.

use serde::Serialize;
use unspin_scenario::plan::CgroupLayout;
use unspin_scenario::result::WorldDesign;
use unspin_worlds::{Band, Share};

/// Where the ratio of an arm to the baseline lies over worlds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bands {
    /// Quantiles of the ratio; bigger is better.
    pub band: Band,
    /// What each input decides of the logarithm's variance, the largest share first.
    pub decides: Vec<Decides>,
}

/// What an input decides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decides {
    pub input: String,
    /// The share of the variance that the input decides by itself, and its 90 % interval.
    #[serde(flatten)]
    pub share: Share,
    /// The 90 % band, were the input known: about as wide as what variance is left. Null of inputs
    /// that nobody can know.
    pub band_if_known: Option<[f64; 2]>,
}

/// The worlds of one design.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorldsMade {
    pub design: WorldDesign,
    /// Worlds of the design, and those of them whose records are here.
    pub of: u32,
    pub made: u32,
    /// Worlds of those here in which a machine is impossible: they are in no band.
    pub impossible: u32,
    pub reasons: Vec<Reason>,
    pub inputs: Vec<InputRow>,
}

/// Why worlds are impossible.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reason {
    pub error: String,
    pub worlds: u32,
}

/// An input as it was drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InputRow {
    pub name: String,
    /// The values at the least and at the largest place that was drawn.
    pub from: String,
    pub to: String,
    pub source: String,
}

/// In which order the arms of one point come.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OrderRow {
    pub profile: String,
    pub vms: u32,
    pub cgroup: CgroupLayout,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lock: String,
    /// The most probable order, the best first.
    pub order: Vec<String>,
    /// The share of worlds that have it.
    pub probability: f64,
    pub pairs: Vec<PairRow>,
}

/// How probably an arm does more than another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairRow {
    pub better: String,
    pub worse: String,
    pub probability: f64,
}
