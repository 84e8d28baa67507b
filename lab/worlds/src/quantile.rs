// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantiles of a sample.

/// The quantile `p` (0 to 1) of values in ascending order, interpolated between neighbours (type 7
/// of Hyndman and Fan, 1996, as in R and NumPy). `None` without values.
pub fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = p.clamp(0.0, 1.0) * last as f64;
    let (low, part) = (at as usize, at.fract());
    let high = (low + 1).min(last);
    Some(sorted[low] + part * (sorted[high] - sorted[low]))
}

/// The quantile `p` (above 0, below 1) of the normal distribution (P. J. Acklam's rational
/// approximation, 2003; relative error at most 1.2e-9).
pub fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -39.69683028665376,
        220.9460984245205,
        -275.9285104469687,
        138.357751867269,
        -30.66479806614716,
        2.506628277459239,
    ];
    const B: [f64; 6] = [
        -54.47609879822406,
        161.5858368580409,
        -155.6989798598866,
        66.80131188771972,
        -13.28068155288572,
        1.0,
    ];
    const C: [f64; 6] = [
        -0.007784894002430293,
        -0.3223964580411365,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 5] =
        [0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416, 1.0];
    let poly = |all: &[f64], x: f64| all.iter().fold(0.0, |sum, c| sum * x + c);
    let p = p.clamp(1e-12, 1.0 - 1e-12);
    if p > 0.5 {
        return -normal_quantile(1.0 - p);
    }
    if p < 0.02425 {
        let q = (-2.0 * p.ln()).sqrt();
        return poly(&C, q) / poly(&D, q);
    }
    let q = p - 0.5;
    poly(&A, q * q) * q / poly(&B, q * q)
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
