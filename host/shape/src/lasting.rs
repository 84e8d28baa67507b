// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lasting need of a vCPU (an addition of this project). Whether a vCPU is ready is read once per period,
//! so the prediction for a single period fluctuates even if nothing changes. Weights and places that followed
//! every prediction would cost more than they gain.

/// Weight of the last period in the mean. With 1/2, programs whose rounds take 30 ms and more gain half as
/// much on machine sim (lab/sim/tests/machines/asym.rs).
const LAST: f64 = 0.25;

/// The exponentially weighted mean of the CPU time predicted for a vCPU, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Lasting(Option<f64>);

impl Lasting {
    /// The mean of several needs.
    pub fn mean(needs: &[Lasting]) -> Lasting {
        let sum: f64 = needs.iter().map(Lasting::ns).sum();
        Lasting(Some(sum / needs.len().max(1) as f64))
    }

    /// Adds the prediction at the end of a period.
    pub fn period(&mut self, predicted_ns: u64) {
        let mean = self.0.unwrap_or(predicted_ns as f64);
        self.0 = Some(mean + LAST * (predicted_ns as f64 - mean));
    }

    /// The mean, ns; 0 before the first period.
    pub fn ns(&self) -> f64 {
        self.0.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// It is between the least and the largest prediction, and converges to a constant one.
        #[test]
        fn it_is_a_mean(predicted in proptest::collection::vec(0..80_000_000u64, 1..50), last in 0..80_000_000u64) {
            let mut lasting = Lasting::default();
            for ns in &predicted {
                lasting.period(*ns);
                let among = |f: fn(u64, u64) -> u64| predicted.iter().copied().reduce(f).unwrap() as f64;
                prop_assert!(lasting.ns() >= among(u64::min) - 1.0 && lasting.ns() <= among(u64::max) + 1.0);
            }
            (0..300).for_each(|_| lasting.period(last));
            prop_assert!((lasting.ns() - last as f64).abs() < 1.0);
        }
    }
}
