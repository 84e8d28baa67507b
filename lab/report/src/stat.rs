// SPDX-License-Identifier: MIT OR Apache-2.0
//! Medians, their spread, fairness, and percentiles of power-of-two histograms.

/// Confidence level of the interval around a median.
const COVERAGE: f64 = 0.9;

/// A sample: its median, its range, and a confidence interval of the true median.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub n: usize,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Order statistics that contain the true median with at least 90 % confidence for any
    /// distribution; for fewer than 5 values, the whole range (3 values: 75 %).
    pub low: f64,
    pub high: f64,
}

pub fn spread(values: &[f64]) -> Option<Spread> {
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    let n = v.len();
    let cut = order_cut(n);
    Some(Spread {
        n,
        median: middle(&v),
        min: v[0],
        max: v[n - 1],
        low: v[cut],
        high: v[n - 1 - cut],
    })
}

/// The middle value, or the mean of the two; `None` of nothing, or if a value is not finite.
pub fn median(values: &[f64]) -> Option<f64> {
    spread(values).map(|s| s.median)
}

fn middle(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    if n % 2 == 1 {
        sorted[n / 2]
    } else {
        (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0
    }
}

/// Number of values to leave out at each end.
fn order_cut(n: usize) -> usize {
    let mut tail = 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut term = tail;
    let mut cut = 0;
    // With `cut + 1` left out, the interval misses with probability 2 * P(at most `cut + 1` of n
    // below).
    while 2 * (cut + 1) < n {
        term *= (n - cut) as f64 / (cut + 1) as f64;
        tail += term;
        if 1.0 - 2.0 * tail < COVERAGE {
            break;
        }
        cut += 1;
    }
    cut
}

/// What a spread of ratios shows about a difference from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Better,
    Worse,
    CannotTell,
}

impl Verdict {
    pub fn of(ratios: &Spread) -> Verdict {
        if ratios.n < 2 || (ratios.low <= 1.0 && ratios.high >= 1.0) {
            Verdict::CannotTell
        } else if ratios.low > 1.0 {
            Verdict::Better
        } else {
            Verdict::Worse
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::CannotTell => "cannot tell",
        }
    }
}

/// Jain's index: 1 if all are equal, 1/n if one has all.
pub fn jain(x: &[f64]) -> Option<f64> {
    let sum: f64 = x.iter().sum();
    let squares: f64 = x.iter().map(|v| v * v).sum();
    (!x.is_empty() && squares > 0.0).then(|| sum * sum / (x.len() as f64 * squares))
}

/// The value below which a share `q` of a histogram with buckets [2^b, 2^(b+1)) lies, assuming an
/// even distribution on the logarithmic scale within a bucket.
pub fn log2_percentile(hist: &[u64], q: f64) -> Option<f64> {
    let total: f64 = hist.iter().map(|n| *n as f64).sum();
    if total == 0.0 {
        return None;
    }
    let wanted = q * total;
    let mut below = 0.0;
    let mut last = 0;
    for (b, n) in hist.iter().enumerate().filter(|(_, n)| **n > 0) {
        let n = *n as f64;
        if below + n >= wanted {
            return Some(2f64.powf(b as f64 + ((wanted - below) / n).clamp(0.0, 1.0)));
        }
        below += n;
        last = b;
    }
    Some(2f64.powi(last as i32 + 1))
}

/// Six decimals: more than any measurement has, and still readable.
pub(crate) fn round(x: f64) -> f64 {
    (x * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_the_whole_range_until_five() {
        let s = spread(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((s.low, s.median, s.high), (1.0, 2.0, 3.0));
        let five = spread(&[1.0, 2.0, 3.0, 4.0, 100.0]).unwrap();
        assert_eq!((five.low, five.high), (1.0, 100.0), "5 values: 93.75 % needs all of them");
    }

    #[test]
    fn interval_drops_ends_as_the_tables_say() {
        // Known: n = 8 at >= 90 %: x2..x7 (93.0 %); n = 11: x3..x9 (93.5 %).
        let eight: Vec<f64> = (1..=8).map(f64::from).collect();
        let s = spread(&eight).unwrap();
        assert_eq!((s.low, s.high), (2.0, 7.0));
        let eleven: Vec<f64> = (1..=11).map(f64::from).collect();
        let s = spread(&eleven).unwrap();
        assert_eq!((s.low, s.high), (3.0, 9.0));
    }

    #[test]
    fn even_medians_lie_between() {
        assert_eq!(median(&[1.0, 2.0, 3.0, 10.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN]), None);
    }

    #[test]
    fn verdict_needs_a_spread_that_leaves_one_out() {
        let v = |x: &[f64]| Verdict::of(&spread(x).unwrap());
        assert_eq!(v(&[1.2, 1.3, 1.1]), Verdict::Better);
        assert_eq!(v(&[0.9, 0.8]), Verdict::Worse);
        assert_eq!(v(&[0.9, 1.3, 1.2]), Verdict::CannotTell);
        assert_eq!(v(&[1.5]), Verdict::CannotTell, "one repeat has no spread");
    }

    #[test]
    fn jain_index() {
        assert_eq!(jain(&[2.0, 2.0, 2.0]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[0.0, 0.0]), None);
    }

    #[test]
    fn percentiles_of_a_log_histogram() {
        let mut h = vec![0; 12];
        h[10] = 100;
        assert_eq!(log2_percentile(&h, 0.5), Some(2f64.powf(10.5)));
        assert_eq!(log2_percentile(&h, 1.0), Some(2048.0));
        assert_eq!(log2_percentile(&[0, 0], 0.5), None);
        // Merged over repeats, a bucket may be saturated.
        assert_eq!(log2_percentile(&[0, u64::MAX, u64::MAX], 0.5), Some(4.0));
        h[4] = 300;
        assert!(log2_percentile(&h, 0.5).unwrap() < 32.0);
        assert!(log2_percentile(&h, 0.99).unwrap() > 1024.0);
    }
}
