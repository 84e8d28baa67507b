// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a vCPU needs that lasts (ours): whether it is ready is looked at once in a period, so what is predicted
//! for one period goes up and down where nothing has changed. Weights and places that followed each of these
//! predictions would cost more than they bring.

/// Of the mean, the part that the last period counts. With half of it programs whose rounds take 30 ms and more gain
/// half as much on machine sim (crates/sim/tests/asym.rs).
const LAST: f64 = 0.25;

/// The mean of what was predicted for a vCPU, period by period, the last ones counting most; ns of CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Lasting(Option<f64>);

impl Lasting {
    /// The mean of what several need.
    pub fn mean(needs: &[Lasting]) -> Lasting {
        let sum: f64 = needs.iter().map(Lasting::ns).sum();
        Lasting(Some(sum / needs.len().max(1) as f64))
    }

    /// A period has ended, and so much was predicted for the next.
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
        /// It lies between the least and the most that was predicted, and comes to what goes on being predicted.
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
