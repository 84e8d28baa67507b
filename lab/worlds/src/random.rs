// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers that depend only on a seed, the same on every computer.

use unspin_guest_abi::rng::splitmix64;

/// A stream of random numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(splitmix64(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        splitmix64(self.0)
    }

    /// From 0 to `n` - 1; `n` is at least 1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}
