// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums of times that CPUs change without a lock; `bpf/ready.h` explains them.

/// Clocks of two CPUs differ by less than this; `SLACK` in C.
const SLACK: i64 = 1 << 27;

/// How long something lasted until `now`, in ns: `sum_at()` in C.
pub fn at(sum: u64, now: u64) -> u64 {
    let mut time = sum as i64;
    if time < -SLACK {
        time = time.wrapping_add(now as i64);
        if time < -SLACK {
            time = time.wrapping_add(now as i64);
        }
    } else if time > now as i64 - SLACK {
        time -= now as i64;
    }
    time.max(0) as u64
}
