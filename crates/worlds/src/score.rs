// SPDX-License-Identifier: MIT OR Apache-2.0
//! How good a band was, once the ratio was measured. All of it in logarithms.

/// What a 90 % band leaves out.
const ALPHA: f64 = 0.1;

/// Whether the band from `low` to `high` has `measured`, all of them ratios above 0.
pub fn covers(low: f64, high: f64, measured: f64) -> bool {
    (low..=high).contains(&measured)
}

/// The interval score of a 90 % band of a ratio (T. Gneiting and A. E. Raftery, "Strictly proper
/// scoring rules, prediction, and estimation", JASA 2007, equation 43): its width, and 20 times what
/// the measured ratio lies outside. Less is better; wide bands cost.
pub fn interval_score(low: f64, high: f64, measured: f64) -> f64 {
    let (low, high, measured) = (low.ln(), high.ln(), measured.ln());
    let outside = (low - measured).max(measured - high).max(0.0);
    high - low + 2.0 / ALPHA * outside
}

/// The same of who says that nothing changes: a ratio of 1, and no width.
pub fn no_change_score(measured: f64) -> f64 {
    interval_score(1.0, 1.0, measured)
}
