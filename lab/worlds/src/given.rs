// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares of variance from a plain sample, without further runs: sorts the worlds by one input,
//! divides them into groups of equal size, and computes how much of the outcomes' variance is
//! between the groups (E. Plischke, E. Borgonovo, C. L. Smith, "Global sensitivity measures from
//! given data", EJOR 2013). Differences of groups by chance are subtracted (epsilon squared: T. L.
//! Kelley, 1935).

use crate::quantile::variance;
use crate::random::Random;
use crate::share::Share;

/// Number of halves of the sample from which an interval is computed.
const HALVES: usize = 200;
/// Quantile of the normal distribution for a two-sided 90 % interval.
const Z: f64 = 1.645;

/// The share of each input, from `points[world][input]` and each world's outcome. The interval is
/// computed from the differences between halves of the sample (delete-half jackknife: J. Shao and C.
/// F. J. Wu, 1989). Empty for fewer than eight worlds. No input has a share if all outcomes are the
/// same.
pub fn shares(points: &[Vec<f64>], outcomes: &[f64], seed: u64) -> Vec<Share> {
    let inputs = points.first().map_or(0, Vec::len);
    if points.len() < 8 || points.len() != outcomes.len() {
        return Vec::new();
    }
    let all: Vec<usize> = (0..points.len()).collect();
    let of = |input: usize| {
        let mut sorted: Vec<usize> = all.clone();
        sorted.sort_by(|a, b| points[*a][input].total_cmp(&points[*b][input]));
        let whole = share(&sorted, outcomes);
        let mut random = Random::new(seed);
        let halves: Vec<f64> =
            (0..HALVES).map(|_| share(&half(&sorted, &mut random), outcomes)).collect();
        let spread = variance(&halves).sqrt();
        Share::new(whole, whole - Z * spread, whole + Z * spread)
    };
    (0..inputs).map(of).collect()
}

/// The share from worlds in the order of an input.
fn share(sorted: &[usize], outcomes: &[f64]) -> f64 {
    let y: Vec<f64> = sorted.iter().map(|i| outcomes[*i]).collect();
    let (n, whole) = (y.len(), variance(&y));
    let groups = groups(n);
    if whole <= 0.0 {
        return 0.0;
    }
    let group = |g: usize| &y[g * n / groups..(g + 1) * n / groups];
    let within = (0..groups).map(|g| group(g).len() as f64 * variance(group(g))).sum::<f64>();
    let by_chance = (n - 1) as f64 / (n - groups) as f64;
    1.0 - by_chance * within / (n as f64 * whole)
}

/// Number of groups. More groups hide less of the effect; with fewer, chance is easier to exclude.
fn groups(worlds: usize) -> usize {
    ((0.4 * worlds as f64).sqrt().round() as usize).clamp(2, 20)
}

/// A random half of the worlds, in the same order.
fn half(sorted: &[usize], random: &mut Random) -> Vec<usize> {
    let mut left = sorted.len() / 2;
    let mut half = Vec::with_capacity(left);
    for (i, world) in sorted.iter().enumerate() {
        if random.below(sorted.len() - i) < left {
            half.push(*world);
            left -= 1;
        }
    }
    half
}
