// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether outcomes are of two kinds, such as a lock that collapses in some worlds and not in others.
//! Then their median says little.
//!
//! Silverman's test of one mode (B. W. Silverman, "Using kernel density estimates to investigate
//! multimodality", JRSS B 1981): the narrowest Gaussian kernel under which the density has one mode, and
//! how often samples of that density have more under it. Two kinds must besides lie apart by Ashman's D
//! (K. M. Ashman, C. M. Bird, S. E. Zepf, "Detecting bimodality in astronomical datasets", 1994).

use crate::quantile::{mean, quantile, sorted, variance};
use crate::random::Random;
use serde::Serialize;

const GRID: usize = 256;
const SAMPLES: usize = 200;
/// One mode is doubted where as few samples have more.
const DOUBT: f64 = 0.05;
/// Ashman's D from which kinds lie apart. The two halves of one bell have 2.7, those of a uniform
/// distribution 3.46.
const APART: f64 = 3.5;
/// Kinds that differ by less than 5 % are one to whoever looks at ratios.
const DIFFER: f64 = 0.05;
/// The rarer kind has so many of the worlds.
const RARE: f64 = 0.05;
const WORLDS_MIN: usize = 20;

/// Two kinds of outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Kinds {
    /// Median ratio of the lower and of the upper kind.
    pub low: f64,
    pub high: f64,
    /// The share of worlds of the upper kind.
    pub p_high: f64,
}

/// The two kinds that the outcomes (logarithms of ratios) are of; `None` where one kind explains them,
/// or there are fewer than 20.
pub fn two_kinds(outcomes: &[f64], seed: u64) -> Option<Kinds> {
    let all = sorted(outcomes.iter().copied());
    if all.len() < WORLDS_MIN || all[all.len() - 1] - all[0] < DIFFER {
        return None;
    }
    let spread = variance(&all).sqrt();
    let at = valley(&all, critical(&all, spread)? * 0.99)?;
    let (low, high) = all.split_at(all.partition_point(|x| *x < at));
    let kinds = Kinds {
        low: quantile(low, 0.5)?.exp(),
        high: quantile(high, 0.5)?.exp(),
        p_high: high.len() as f64 / all.len() as f64,
    };
    let rare = kinds.p_high.min(1.0 - kinds.p_high) < RARE;
    let apart = mean(high) - mean(low);
    let ashman = apart * (2.0 / (variance(low) + variance(high)).max(f64::MIN_POSITIVE)).sqrt();
    let one_kind = rare || apart < DIFFER || ashman <= APART;
    (!one_kind && doubt(&all, spread, seed) < DOUBT).then_some(kinds)
}

/// How often samples of the smoothed outcomes have more than one mode under the critical kernel.
fn doubt(all: &[f64], spread: f64, seed: u64) -> f64 {
    let Some(h) = critical(all, spread) else { return 1.0 };
    let (m, shrink) = (mean(all), (1.0 + h * h / (spread * spread)).sqrt());
    let mut random = Random::new(seed);
    let more = (0..SAMPLES).filter(|_| {
        let again = all.iter().map(|_| {
            let x = all[random.below(all.len())] + h * random.normal();
            m + (x - m) / shrink
        });
        modes(&sorted(again), h).len() > 1
    });
    more.count() as f64 / SAMPLES as f64
}

/// The narrowest kernel with one mode; `None` where the widest tried has more.
fn critical(all: &[f64], spread: f64) -> Option<f64> {
    let (mut low, mut high) = (spread / 100.0, 2.0 * spread);
    if modes(all, high).len() > 1 {
        return None;
    }
    for _ in 0..30 {
        let h = (low * high).sqrt();
        match modes(all, h).len() > 1 {
            true => low = h,
            false => high = h,
        }
    }
    Some(high)
}

/// Where the density is least between its two highest modes.
fn valley(all: &[f64], h: f64) -> Option<f64> {
    let mut modes = modes(all, h);
    modes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (a, b) = (modes.first()?.0, modes.get(1)?.0);
    let (a, b) = (a.min(b), a.max(b));
    let steps = (0..=GRID).map(|i| a + (b - a) * i as f64 / GRID as f64);
    let density = |x: f64| all.iter().map(|y| kernel((x - y) / h)).sum::<f64>();
    steps.min_by(|x, y| density(*x).total_cmp(&density(*y)))
}

fn kernel(x: f64) -> f64 {
    (-x * x / 2.0).exp()
}

/// Places and heights of the modes under a kernel of width `h`.
fn modes(sorted: &[f64], h: f64) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Vec::new() };
    let (from, to) = (first - 3.0 * h, last + 3.0 * h);
    let at = |i: usize| from + (to - from) * i as f64 / (GRID - 1) as f64;
    // Farther than five widths there is nothing to add.
    let density = |i: usize| {
        let x = at(i);
        let near = sorted.partition_point(|y| *y < x - 5.0 * h);
        let near = sorted[near..].iter().take_while(|y| **y <= x + 5.0 * h);
        near.map(|y| kernel((x - y) / h)).sum::<f64>()
    };
    let heights: Vec<f64> = (0..GRID).map(density).collect();
    let (mut found, mut rising) = (Vec::new(), true);
    for i in 1..GRID {
        if heights[i] > heights[i - 1] {
            rising = true;
        } else if heights[i] < heights[i - 1] {
            if rising {
                found.push((at(i - 1), heights[i - 1]));
            }
            rising = false;
        }
    }
    found
}
