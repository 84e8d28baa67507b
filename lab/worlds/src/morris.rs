// SPDX-License-Identifier: MIT OR Apache-2.0
//! Screening (M. D. Morris, "Factorial sampling plans for preliminary computational experiments",
//! Technometrics 1991): which of many inputs matter at all, in few worlds. A trajectory changes one
//! input after the other.

use crate::quantile::{mean, quantile, sorted};
use crate::random::Random;
use serde::Serialize;

/// Levels of an input, 0 to 1 in equal steps.
const LEVELS: usize = 4;
/// How far an input is changed: LEVELS / (2 (LEVELS - 1)), so that each level is as frequent.
const STEP: f64 = 2.0 / 3.0;
const RESAMPLES: usize = 400;

/// What changing an input does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Effect {
    /// Mean of the elementary effects' sizes (mu*; F. Campolongo et al., 2007), in the outcome's unit
    /// per whole range of the input, and its 90 % interval.
    pub mu_star: f64,
    pub low: f64,
    pub high: f64,
    /// Standard deviation of the elementary effects: large where the input acts unevenly or together
    /// with others.
    pub sigma: f64,
}

/// Trajectory number `index` of the design: `inputs` + 1 worlds.
fn trajectory(index: usize, inputs: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut random = Random::new(seed ^ (index as u64 + 1).wrapping_mul(0x2545_f491_4f6c_dd1d));
    let low = |random: &mut Random| random.below(LEVELS / 2) as f64 / (LEVELS - 1) as f64;
    let up: Vec<bool> = (0..inputs).map(|_| random.below(2) == 1).collect();
    let ends: Vec<f64> = (0..inputs).map(|_| low(&mut random)).collect();
    let mut world: Vec<f64> =
        ends.iter().zip(&up).map(|(x, up)| if *up { *x } else { x + STEP }).collect();
    let mut turns: Vec<usize> = (0..inputs).collect();
    random.shuffle(&mut turns);
    let mut worlds = vec![world.clone()];
    for input in turns {
        world[input] = if up[input] { ends[input] + STEP } else { ends[input] };
        worlds.push(world.clone());
    }
    worlds
}

/// The worlds of so many trajectories, one after the other, as SALib's `morris` has them. The first
/// trajectories of more are the same.
pub fn trajectories(count: usize, inputs: usize, seed: u64) -> Vec<Vec<f64>> {
    (0..count).flat_map(|index| trajectory(index, inputs, seed)).collect()
}

/// Effects of the inputs, from trajectories and the outcomes of their worlds. A world without an
/// outcome (`None`) takes the effects beside it out. Inputs without any effect left have zeros.
pub fn effects(points: &[Vec<f64>], outcomes: &[Option<f64>], seed: u64) -> Vec<Effect> {
    let inputs = points.first().map_or(0, Vec::len);
    let mut found = vec![Vec::new(); inputs];
    let whole = points.chunks_exact(inputs + 1).zip(outcomes.chunks_exact(inputs + 1));
    for (worlds, outcomes) in whole.filter(|_| inputs > 0) {
        for (pair, y) in worlds.windows(2).zip(outcomes.windows(2)) {
            let changed = (0..inputs).find(|i| pair[0][*i] != pair[1][*i]);
            if let (Some(input), Some(a), Some(b)) = (changed, y[0], y[1]) {
                found[input].push((b - a) / (pair[1][input] - pair[0][input]));
            }
        }
    }
    found.iter().map(|effects| effect(effects, seed)).collect()
}

fn effect(effects: &[f64], seed: u64) -> Effect {
    let sizes: Vec<f64> = effects.iter().map(|e| e.abs()).collect();
    let mut random = Random::new(seed);
    let resampled = |_| {
        let again: Vec<f64> = (0..sizes.len()).map(|_| sizes[random.below(sizes.len())]).collect();
        mean(&again)
    };
    let all = sorted((0..RESAMPLES).map(resampled));
    let m = mean(effects);
    let n = effects.len().saturating_sub(1).max(1) as f64;
    let sigma = (effects.iter().map(|e| (e - m) * (e - m)).sum::<f64>() / n).sqrt();
    let at = |p| quantile(&all, p).unwrap_or(0.0);
    Effect { mu_star: mean(&sizes), low: at(0.05), high: at(0.95), sigma }
}
