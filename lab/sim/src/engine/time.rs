// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's clock: cycles and nanoseconds.

/// Converts cycles to ns by one multiplication with 20 bits of fraction, rounded to the nearest.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    ns_per_cycle_q20: u64,
    khz: u64,
}

impl Clock {
    pub fn new(khz: u64) -> Clock {
        Clock { ns_per_cycle_q20: ((1_000_000 << 20) + khz / 2) / khz, khz }
    }

    pub fn ns(&self, cycles: u64) -> u64 {
        (cycles * self.ns_per_cycle_q20 + (1 << 19)) >> 20
    }

    pub fn cycles(&self, ns: u64) -> u64 {
        (u128::from(ns) * u128::from(self.khz) / 1_000_000) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_nanoseconds_of_the_clock() {
        assert_eq!(Clock::new(200_000).ns(4096), 20_480);
        assert!(Clock::new(2_400_000).ns(2_400_000_000).abs_diff(1_000_000_000) < 1000, "1 ppm");
        assert_eq!(Clock::new(1_000_000).ns(77), 77);
        assert_eq!(Clock::new(2_400_000).cycles(1_000_000_000), 2_400_000_000);
    }
}
