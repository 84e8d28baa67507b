// SPDX-License-Identifier: MIT OR Apache-2.0
//! J. Shan's dissertation (NJIT 2018), a file per chapter: why threads are slow in VMs (chapter 2), how
//! far applications scale there (4), and asymmetric vCPUs (5).

mod asym;
mod factors;
mod speedup;

use crate::Experiment;

pub const EXPERIMENTS: &[&[Experiment]] =
    &[factors::EXPERIMENTS, speedup::EXPERIMENTS, asym::EXPERIMENTS];

/// The mean over benchmarks, each with the number of times that the text counts it.
fn average(names: &[(&str, f64)], values: &[f64]) -> f64 {
    let sum: f64 = names.iter().zip(values).map(|((_, times), v)| times * v).sum();
    sum / names.iter().map(|(_, times)| times).sum::<f64>()
}
