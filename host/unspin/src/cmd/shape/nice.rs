// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nice values as weights: each step is a factor of 1.25 (`sched_prio_to_weight` of the kernel).

const STEP: f64 = 1.25;
/// The weight of nice value 0, as `cpu.weight` counts.
const WEIGHT: f64 = 100.0;

/// The weight, 1 to 8674, of a nice value, -20 to 19.
pub fn weight(nice: i32) -> u64 {
    (WEIGHT * STEP.powi(-nice)).round() as u64
}

/// The nice value whose weight is nearest, by its ratio.
pub fn nearest(weight: f64) -> i32 {
    let exact = -(weight / WEIGHT).ln() / STEP.ln();
    exact.round().clamp(-20.0, 19.0) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn weights_are_those_of_the_kernel() {
        // sched_prio_to_weight: 88761 for -20, 1024 for 0, 15 for 19.
        for (nice, kernels) in [(-20, 88761.0), (-10, 9548.0), (0, 1024.0), (5, 335.0), (10, 110.0)]
        {
            let ratio = weight(nice) as f64 / WEIGHT / (kernels / 1024.0);
            assert!((0.95..1.05).contains(&ratio), "{nice}: {ratio}");
        }
        assert_eq!(weight(19), 1);
    }

    proptest! {
        #[test]
        fn the_nearest_is_within_half_a_step(weight in 2.0..8000.0f64) {
            let is = WEIGHT * STEP.powi(-nearest(weight));
            let ratio = is / weight;
            prop_assert!((1.0 / STEP.sqrt() - 1e-9..=STEP.sqrt() + 1e-9).contains(&ratio));
        }
    }
}
