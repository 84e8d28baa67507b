// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares of variance from a design of their own: two samples of worlds, A and B, and for each input A
//! with that input of B (A. Saltelli et al., "Variance based sensitivity analysis of model output",
//! Computer Physics Communications 2010).

use crate::quantile::{mean, quantile, sorted, variance};
use crate::random::Random;
use crate::sample::point;
use crate::share::Share;
use serde::Serialize;

const RESAMPLES: usize = 400;

/// What an input decides, alone and together with others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SobolShare {
    /// By itself (first order).
    pub alone: Share,
    /// By itself and together with others (total).
    pub total: Share,
}

/// The design's worlds in SALib's order (`calc_second_order=False`): of each of `rows` rows A, A with
/// each input of B, and B.
pub fn design(rows: u32, inputs: usize, seed: u64) -> Vec<Vec<f64>> {
    let row = |j| {
        let both = point(j, 2 * inputs, seed);
        let (a, b) = both.split_at(inputs);
        let mixed = |i: usize| {
            let mut ab = a.to_vec();
            ab[i] = b[i];
            ab
        };
        let mut worlds = vec![a.to_vec()];
        worlds.extend((0..inputs).map(mixed));
        worlds.push(b.to_vec());
        worlds
    };
    (0..rows).flat_map(row).collect()
}

/// Shares from the outcomes of such a design, worlds in its order. Rows with a world that has no outcome
/// (`None`) do not count. First order as Saltelli (2010), total as Jansen (1999). Intervals are from
/// rows drawn again (bootstrap). Empty of fewer than four rows.
pub fn shares(inputs: usize, outcomes: &[Option<f64>], seed: u64) -> Vec<SobolShare> {
    let rows = outcomes.chunks_exact(inputs + 2);
    let rows: Vec<Vec<f64>> = rows.filter_map(|row| row.iter().copied().collect()).collect();
    if rows.len() < 4 {
        return Vec::new();
    }
    let all: Vec<&Vec<f64>> = rows.iter().collect();
    let whole = indices(inputs, &all);
    let mut random = Random::new(seed);
    let resampled: Vec<Vec<(f64, f64)>> = (0..RESAMPLES)
        .map(|_| {
            let again: Vec<&Vec<f64>> =
                (0..rows.len()).map(|_| &rows[random.below(rows.len())]).collect();
            indices(inputs, &again)
        })
        .collect();
    let interval = |i: usize, of: fn(&(f64, f64)) -> f64| {
        let all = sorted(resampled.iter().map(|r| of(&r[i])));
        let at = |p| quantile(&all, p).unwrap_or(0.0);
        Share::new(of(&whole[i]), at(0.05), at(0.95))
    };
    (0..inputs)
        .map(|i| SobolShare { alone: interval(i, |s| s.0), total: interval(i, |s| s.1) })
        .collect()
}

/// First-order and total indices.
fn indices(inputs: usize, rows: &[&Vec<f64>]) -> Vec<(f64, f64)> {
    // About the mean of all, which takes most of the estimators' scatter away.
    let every: Vec<f64> = rows.iter().flat_map(|r| r.iter().copied()).collect();
    let m = mean(&every);
    let ends: Vec<f64> = rows.iter().flat_map(|r| [r[0], r[inputs + 1]]).collect();
    let v = variance(&ends);
    if v <= 0.0 {
        return vec![(0.0, 0.0); inputs];
    }
    let n = rows.len() as f64;
    let of = |i: usize| {
        let parts = rows.iter().map(|r| (r[0] - m, r[i + 1] - m, r[inputs + 1] - m));
        let (first, total) = parts.fold((0.0, 0.0), |(first, total), (a, ab, b)| {
            (first + b * (ab - a), total + (a - ab) * (a - ab))
        });
        (first / n / v, total / (2.0 * n) / v)
    };
    (0..inputs).map(of).collect()
}
