// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantiles of a sample.

/// The quantile `p` (0 to 1) of values in ascending order, between neighbours in proportion (type 7 of
/// Hyndman and Fan, 1996, as R and NumPy have it). `None` of no values.
pub fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = p.clamp(0.0, 1.0) * last as f64;
    let (low, part) = (at as usize, at.fract());
    let high = (low + 1).min(last);
    Some(sorted[low] + part * (sorted[high] - sorted[low]))
}

pub(crate) fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = values.into_iter().collect();
    all.sort_by(f64::total_cmp);
    all
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Mean of squared deviations from the mean.
pub(crate) fn variance(values: &[f64]) -> f64 {
    let m = mean(values);
    values.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / values.len().max(1) as f64
}
