// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments that switch between two settings, A and B: the order of their phases, and the confidence
//! interval of the difference.

use serde::Serialize;

/// Quantiles of Student's distribution, 97.5 %, by degrees of freedom from 1 on.
const STUDENT: [f64; 30] = [
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010,
    2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687,
    2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
];

/// The same of the normal distribution.
const NORMAL: f64 = 1.959_964;

/// A mean, and its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    #[serde(rename = "value")]
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// For differences of independent pairs (Student's t). `None` for fewer than two.
    pub fn of(differences: &[f64]) -> Option<Interval> {
        if differences.len() < 2 {
            return None;
        }
        let n = differences.len() as f64;
        let mean = differences.iter().sum::<f64>() / n;
        let squares: f64 = differences.iter().map(|d| (d - mean).powi(2)).sum();
        let half = student(differences.len() - 1) * (squares / (n - 1.0) / n).sqrt();
        Some(Interval { mean, low: mean - half, high: mean + half })
    }

    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// The same on another scale; `scale` must be increasing.
    pub fn map(self, scale: impl Fn(f64) -> f64) -> Interval {
        Interval { mean: scale(self.mean), low: scale(self.low), high: scale(self.high) }
    }
}

/// Beyond the table it uses Fisher's expansion.
fn student(degrees: usize) -> f64 {
    let (z, v) = (NORMAL, degrees as f64);
    STUDENT.get(degrees.wrapping_sub(1)).copied().unwrap_or_else(|| {
        z + (z.powi(3) + z) / (4.0 * v)
            + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * v * v)
    })
}

/// Whether a phase, counted from 0, is of B. The order is ABBA ABBA …. Phases 2n and 2n + 1 are a
/// pair. A steady drift adds as much to A as to B.
pub fn is_of_b(window: usize) -> bool {
    matches!(window % 4, 1 | 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The quantile of Student's distribution times the standard error of the mean.
    #[test]
    fn an_interval_is_that_of_students_test() {
        let of_3 = 4.3027 * (7.0f64 / 3.0).sqrt();
        for (all, mean, half) in [
            (&[0.0, 2.0][..], 1.0, 12.7062),
            (&[1.0, 2.0, 6.0][..], 3.0, of_3),
            (&[5.0; 4][..], 5.0, 0.0),
        ] {
            let of = Interval::of(all).unwrap();
            let is = [of.mean, of.low, of.high];
            let expected = [mean, mean - half, mean + half];
            assert!(is.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{of:?}");
        }
    }

    /// Integrates the distribution's density.
    #[test]
    fn quantiles_are_those_of_the_distribution() {
        for degrees in (1..=60).chain([100, 400]) {
            let v = degrees as f64;
            let density = |t: f64| (1.0 + t * t / v).powf(-(v + 1.0) / 2.0);
            let sum = |to: f64| {
                let steps = 20_000;
                let step = to / f64::from(steps);
                let middle = |i| density((f64::from(i) + 0.5) * step) * step;
                (0..steps).map(middle).sum::<f64>()
            };
            // t = sqrt(v) tan(x) maps the whole line to a finite interval.
            let steps = 20_000;
            let step = std::f64::consts::FRAC_PI_2 / f64::from(steps);
            let half: f64 = (0..steps)
                .map(|i| ((f64::from(i) + 0.5) * step).cos().powf(v - 1.0) * step * v.sqrt())
                .sum();
            let share = sum(student(degrees)) / half;
            assert!((share - 0.95).abs() < 2e-5, "{degrees}: {share}");
        }
    }

    proptest! {
        #[test]
        fn scale_and_origin_do_not_matter(
            all in prop::collection::vec(-1e3..1e3f64, 2..20),
            by in 0.1..10.0f64,
            to in -1e3..1e3f64,
        ) {
            let of = Interval::of(&all).unwrap();
            let moved: Vec<f64> = all.iter().map(|d| d * by + to).collect();
            let moved = Interval::of(&moved).unwrap();
            let expected = of.map(|d| d * by + to);
            prop_assert!((moved.low - expected.low).abs() < 1e-6, "{moved:?} {expected:?}");
            prop_assert!((moved.high - expected.high).abs() < 1e-6);
            prop_assert!(of.low <= of.mean && of.mean <= of.high && of.holds(of.mean));
        }

        #[test]
        fn steady_growth_falls_on_both_arms_alike(twos in 1..20usize, slope in -1.0..1.0f64) {
            let sum = |b| {
                let of = (0..4 * twos).filter(|w| is_of_b(*w) == b);
                of.map(|w| slope * w as f64).sum::<f64>()
            };
            prop_assert!((sum(true) - sum(false)).abs() < 1e-9);
            prop_assert!((0..2 * twos).all(|pair| is_of_b(2 * pair) != is_of_b(2 * pair + 1)));
        }
    }

    #[test]
    fn one_pair_says_nothing() {
        assert_eq!(Interval::of(&[1.0]), None);
        let same = Interval::of(&[0.25, 0.25]).unwrap();
        assert_eq!(same, Interval { mean: 0.25, low: 0.25, high: 0.25 });
    }
}
