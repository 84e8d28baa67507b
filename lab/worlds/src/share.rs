// SPDX-License-Identifier: MIT OR Apache-2.0
//! The influence of an input.

use serde::Serialize;

/// The share of the outcome's variance that one input decides alone (first-order index of Sobol).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// 0 to 1.
    pub share: f64,
    /// Its 90 % interval.
    pub low: f64,
    pub high: f64,
}

impl Share {
    pub(crate) fn new(share: f64, low: f64, high: f64) -> Share {
        let fit = |x: f64| if x.is_finite() { x.clamp(0.0, 1.0) } else { 0.0 };
        Share { share: fit(share), low: fit(low), high: fit(high) }
    }

    /// Whether the input's influence is significant.
    pub fn is_told(&self) -> bool {
        self.low > 0.0
    }

    /// The remaining width of a band once the input is known: the square root of the remaining
    /// variance, as in a normal distribution.
    pub fn width_left(&self) -> f64 {
        (1.0 - self.share).sqrt()
    }
}
