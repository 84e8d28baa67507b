// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scores a band after the ratio was measured. All scores are in logarithms.

/// The probability outside of a 90 % band.
const ALPHA: f64 = 0.1;
/// Quantile of the normal distribution for a two-sided 90 % interval.
const Z: f64 = 1.645;

/// Whether the band from `low` to `high` contains `measured`. All are ratios above 0.
pub fn covers(low: f64, high: f64, measured: f64) -> bool {
    (low..=high).contains(&measured)
}

/// The interval score of a 90 % band of a ratio (T. Gneiting and A. E. Raftery, "Strictly proper
/// scoring rules, prediction, and estimation", JASA 2007, equation 43): its width, plus 20 times
/// the distance of the measured ratio from it. Smaller is better; wide bands cost.
pub fn interval_score(low: f64, high: f64, measured: f64) -> f64 {
    let (low, high, measured) = (low.ln(), high.ln(), measured.ln());
    let outside = (low - measured).max(measured - high).max(0.0);
    high - low + 2.0 / ALPHA * outside
}

/// The interval score of the prediction that nothing changes: a ratio of 1 without width.
pub fn no_change_score(measured: f64) -> f64 {
    interval_score(1.0, 1.0, measured)
}

/// The 90 % interval of a share, from `hits` of `of` trials (E. B. Wilson, "Probable inference, the law
/// of succession, and statistical inference", JASA 1927); `None` without trials.
pub fn share_interval(hits: usize, of: usize) -> Option<[f64; 2]> {
    let (n, z2) = (of as f64, Z * Z);
    let share = hits as f64 / n;
    let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    (of > 0).then(|| [(middle - half).max(0.0), (middle + half).min(1.0)])
}
