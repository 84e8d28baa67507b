// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worlds in rows and summaries: the unknown values of a scenario, drawn many times.

use crate::place::Point;
use serde::Serialize;
use unspin_scenario::result::WorldDesign;
use unspin_worlds::{Band, Share};

/// The distribution over worlds of an arm's ratio to the baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bands {
    /// Quantiles of the ratio; bigger is better.
    pub band: Band,
    /// The share of the logarithm's variance that each input decides, largest first.
    pub decides: Vec<Decides>,
}

/// The influence of an input.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decides {
    pub input: String,
    /// The share of the variance that the input decides alone, and its 90 % interval.
    #[serde(flatten)]
    pub share: Share,
    /// The 90 % band if the input were known: its width follows from the remaining variance. Null
    /// for inputs that cannot be known.
    pub band_if_known: Option<[f64; 2]>,
}

/// The worlds of one design.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorldsMade {
    pub design: WorldDesign,
    /// Number of worlds of the design, and of those with records here.
    pub of: u32,
    pub made: u32,
    /// Number of these worlds whose machine is impossible; they are in no band.
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

/// An input and its draws.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InputRow {
    pub name: String,
    /// The values at the smallest and at the largest drawn place.
    pub from: String,
    pub to: String,
    pub source: String,
}

/// The order of the arms of one point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OrderRow {
    #[serde(flatten)]
    pub at: Point,
    /// The most probable order, the best first.
    pub order: Vec<String>,
    /// The share of worlds with this order.
    pub probability: f64,
    pub pairs: Vec<PairRow>,
}

/// The probability that one arm does more than another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairRow {
    pub better: String,
    pub worse: String,
    pub probability: f64,
}
