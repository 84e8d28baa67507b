// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeds, and the guest's own random functions (`guest/rng.h`) for whoever wants to follow it.

/// Spreads a seed over 64 bits (S. Vigna's splitmix64).
pub fn splitmix64(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Seed of VM number `vm` in a run.
pub fn vm_seed(run_seed: u64, vm: u32) -> u64 {
    splitmix64(run_seed ^ splitmix64(0x7669_7274 ^ u64::from(vm) << 32))
}
