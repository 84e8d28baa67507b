// SPDX-License-Identifier: MIT OR Apache-2.0
//! The distribution of the outcomes of worlds.

use crate::quantile::{quantile, sorted};
use serde::Serialize;

/// Quantiles of a ratio over worlds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Band {
    pub p05: f64,
    pub p25: f64,
    pub p50: f64,
    pub p75: f64,
    pub p95: f64,
    /// The share of worlds in which the ratio is above 1. Worlds in which it is 1 count as half.
    pub p_gain: f64,
    /// Number of worlds.
    pub worlds: usize,
}

impl Band {
    /// The band of logarithms of ratios; `None` without any.
    pub fn of(outcomes: &[f64]) -> Option<Band> {
        let all = sorted(outcomes.iter().copied());
        let at = |p| quantile(&all, p).map(f64::exp);
        let above = all.iter().filter(|x| **x > 0.0).count() as f64;
        let even = all.iter().filter(|x| **x == 0.0).count() as f64;
        Some(Band {
            p05: at(0.05)?,
            p25: at(0.25)?,
            p50: at(0.5)?,
            p75: at(0.75)?,
            p95: at(0.95)?,
            p_gain: (above + even / 2.0) / all.len() as f64,
            worlds: all.len(),
        })
    }

    /// The 90 % band around the median, with its width shrunk to `left` (0 to 1).
    pub fn shrunk(&self, left: f64) -> (f64, f64) {
        let about = |x: f64| (self.p50.ln() + left * (x.ln() - self.p50.ln())).exp();
        (about(self.p05), about(self.p95))
    }
}
