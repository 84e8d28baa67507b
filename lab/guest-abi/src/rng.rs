// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeds, and the guest's own random functions (`guest/rng.h`) for other programs that imitate the
//! guest.

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

/// Time from the first possible start of a run's VMs to that of one, ns; `stagger_ms` is the longest.
pub fn stagger_ns(vm_seed: u64, stagger_ms: u64) -> u64 {
    splitmix64(vm_seed) % (stagger_ms * 1_000_000 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = include_str!("../../guest/exp_table.h");

    fn table() -> Vec<u32> {
        let (_, body) = TABLE.split_once("[256] = {").unwrap();
        let (body, _) = body.split_once('}').unwrap();
        body.split(',').filter_map(|entry| entry.trim().parse().ok()).collect()
    }

    #[test]
    fn exp_table_is_what_it_says() {
        // Integral of ln(1 + f).
        let integral = |f: f64| (1.0 + f) * f.ln_1p() - f;
        let table = table();
        assert_eq!(table.len(), 256);
        for (index, &entry) in table.iter().enumerate() {
            let from = index as f64 / 256.0;
            let mean = 256.0 * (integral(from + 1.0 / 256.0) - integral(from));
            let expected = (2f64.ln() - mean) * f64::from(1 << 20);
            assert!((f64::from(entry) - expected).abs() <= 0.5 + 1e-3, "entry {index}");
        }
        let ln2 = (2f64.ln() * f64::from(1 << 20)).round() as u32;
        assert!(TABLE.contains(&format!("EXP_LN2_Q20 {ln2}u")));
    }

    #[test]
    fn seeds_of_vms_differ() {
        let mut seeds: Vec<u64> =
            (0..8).flat_map(|seed| (0..8).map(move |vm| vm_seed(seed, vm))).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 64);
    }
}
