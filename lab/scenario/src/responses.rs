// SPDX-License-Identifier: MIT OR Apache-2.0
//! Response times as counted by guests.

use serde::{Deserialize, Serialize};

/// Response times of all vCPUs, from the time when the timer of a program's first block was due to
/// the end of that pass.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Responses {
    pub count: u64,
    /// The sum of all response times, TSC cycles.
    pub cycles: u64,
    /// The count of each [`Responses::bucket`].
    pub hist: Vec<u64>,
}

/// Eight per power of two of cycles.
pub const RESPONSE_BUCKETS: usize = 320;

impl Responses {
    /// None yet.
    pub fn none() -> Responses {
        Responses { hist: vec![0; RESPONSE_BUCKETS], ..Responses::default() }
    }

    /// The bucket for this many cycles: exact below 8, then within 1/8, as in
    /// guest/linux/response_bucket.h.
    pub fn bucket(cycles: u64) -> usize {
        if cycles < 8 {
            return cycles as usize;
        }
        let power = 63 - cycles.leading_zeros() as usize;
        let bucket = 8 * (power - 2) + (cycles >> (power - 3) & 7) as usize;
        bucket.min(RESPONSE_BUCKETS - 1)
    }

    /// The bounds of a bucket in cycles; the upper one is exclusive.
    pub fn bounds(bucket: usize) -> (u64, u64) {
        if bucket < 8 {
            return (bucket as u64, bucket as u64 + 1);
        }
        let (power, eighth) = (bucket / 8 + 2, (bucket % 8) as u64);
        let from = |eighth: u64| (8 + eighth) << (power - 3);
        (from(eighth), from(eighth + 1))
    }

    /// The responses after `first`; `None` if there are none. Counts only grow. A response that was
    /// being counted at either end may be in one count and not yet in another.
    pub fn since(&self, first: &Responses) -> Option<Responses> {
        let pairs = self.hist.iter().zip(&first.hist);
        let hist: Vec<u64> = pairs.map(|(now, then)| now.saturating_sub(*then)).collect();
        let count = hist.iter().sum();
        let cycles = self.cycles.saturating_sub(first.cycles);
        (count > 0).then_some(Responses { count, cycles, hist })
    }

    pub fn add(&mut self, cycles: u64) {
        self.count += 1;
        self.cycles += cycles;
        self.hist[Responses::bucket(cycles)] += 1;
    }
}
