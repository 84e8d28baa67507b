// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of the arms.

use serde::Serialize;
use std::collections::BTreeMap;

/// The most probable order of some arms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Order {
    /// Numbers of the arms, best first.
    pub best_first: Vec<usize>,
    /// The share of worlds with this order.
    pub probability: f64,
    pub pairs: Vec<Pair>,
}

/// The probability that an arm does more than another. Worlds in which both do the same count as
/// half.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pair {
    pub better: usize,
    pub worse: usize,
    /// At least 0.5.
    pub probability: f64,
}

/// The order of arms whose outcomes are `worlds[world][arm]`; `None` without worlds. Arms with
/// equal outcomes in a world keep their order there.
pub fn order(worlds: &[Vec<f64>]) -> Option<Order> {
    let mut seen: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for world in worlds {
        let mut arms: Vec<usize> = (0..world.len()).collect();
        arms.sort_by(|a, b| world[*b].total_cmp(&world[*a]));
        *seen.entry(arms).or_default() += 1;
    }
    // Of two equally frequent orders, take the first by its numbers, so that the result is
    // reproducible.
    let (best, count) = seen.into_iter().rev().max_by_key(|(_, n)| *n)?;
    let n = worlds.len() as f64;
    let mut pairs = Vec::new();
    for a in 0..best.len() {
        for b in a + 1..best.len() {
            let above = |w: &&Vec<f64>| w[a] > w[b];
            let even = worlds.iter().filter(|w| w[a] == w[b]).count() as f64;
            let p = (worlds.iter().filter(above).count() as f64 + even / 2.0) / n;
            let (better, worse) = if p >= 0.5 { (a, b) } else { (b, a) };
            pairs.push(Pair { better, worse, probability: p.max(1.0 - p) });
        }
    }
    Some(Order { best_first: best, probability: count as f64 / n, pairs })
}
