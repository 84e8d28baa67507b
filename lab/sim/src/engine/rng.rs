// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's random numbers: a seed gives the same lengths here and in `guest/rng.h`.

use std::sync::OnceLock;
use unspin_guest_abi::rng::splitmix64;

const TABLE_TEXT: &str = include_str!("../../../guest/exp_table.h");
const EXP_LN2_Q20: u64 = 726_817;

/// Mean of ln 2 - ln(1 + f) by the 8 bits of f, 20 bits of fraction: the guest's own table.
fn exp_table() -> &'static [u32; 256] {
    static TABLE: OnceLock<[u32; 256]> = OnceLock::new();
    TABLE.get_or_init(|| {
        let body = TABLE_TEXT.split_once("[256] = {").map_or("", |(_, rest)| rest);
        let body = body.split_once('}').map_or("", |(body, _)| body);
        let entries: Vec<u32> = body.split(',').filter_map(|e| e.trim().parse().ok()).collect();
        entries.try_into().expect("guest/exp_table.h has 256 entries")
    })
}

/// One vCPU's stream of random numbers (xorshift64*).
#[derive(Debug, Clone, Copy)]
pub struct Rng {
    state: u64,
    table: &'static [u32; 256],
}

impl Rng {
    /// The stream of vCPU number `vcpu` in a VM with this seed.
    pub fn new(vm_seed: u64, vcpu: u32) -> Rng {
        let state = splitmix64(vm_seed ^ splitmix64(u64::from(vcpu) + 1));
        Rng { state: state.max(1), table: exp_table() }
    }

    /// Never 0.
    pub fn next(&mut self) -> u64 {
        let mut x = self.state;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.state = x;
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// True with probability `permille` in 1000.
    pub fn chance(&mut self, permille: u32) -> bool {
        ((((self.next() >> 32) * 1000) >> 32) as u32) < permille
    }

    /// A number in `min..=max`.
    pub fn uniform(&mut self, min: u32, max: u32) -> u32 {
        min + (((self.next() >> 32) * (u64::from(max - min) + 1)) >> 32) as u32
    }

    /// An exponentially distributed number with this mean, cut off at `max`.
    pub fn exp(&mut self, mean: u32, max: u32) -> u32 {
        let random = self.next();
        let k = u64::from(random.leading_zeros());
        let f = ((random << k) >> 55) as usize & 0xff;
        let drawn = (u64::from(mean) * (k * EXP_LN2_Q20 + u64::from(self.table[f]))) >> 20;
        u32::try_from(drawn).unwrap_or(u32::MAX).min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_lengths_have_their_means() {
        let mut rng = Rng::new(7, 3);
        let n = 100_000;
        let mean = |draw: &mut dyn FnMut() -> u32| {
            (0..n).map(|_| f64::from(draw())).sum::<f64>() / f64::from(n)
        };
        let exp = mean(&mut || rng.exp(1000, u32::MAX));
        assert!((exp - 1000.0).abs() < 15.0, "{exp}");
        let uniform = mean(&mut || rng.uniform(100, 300));
        assert!((uniform - 200.0).abs() < 2.0, "{uniform}");
        let chance = mean(&mut || u32::from(rng.chance(250)));
        assert!((chance - 0.25).abs() < 0.01, "{chance}");
        assert!((0..n).all(|_| rng.exp(1000, 1500) <= 1500));
    }

    #[test]
    fn vcpus_draw_different_numbers() {
        let first = |vcpu| Rng::new(1, vcpu).next();
        assert_ne!(first(0), first(1));
        assert_eq!(first(2), first(2));
    }
}
