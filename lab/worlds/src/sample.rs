// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plain sample of worlds: Sobol's sequence with Owen's scrambling (B. Burley, "Practical hash-based
//! Owen scrambling", JCGT 2020). It fills the cube evenly, and the first N of 2 N worlds are the same.

/// Largest number of worlds in a sample.
pub const SAMPLES_MAX: u32 = 1 << 16;
/// Largest number of coordinates of a world.
pub const DIMENSIONS_MAX: usize = 256;

/// World number `index` (from 0) of the sample with this seed: `dimensions` coordinates from 0,
/// all below 1.
///
/// # Panics
/// If `index` is [`SAMPLES_MAX`] or more, or `dimensions` is more than [`DIMENSIONS_MAX`].
pub fn point(index: u32, dimensions: usize, seed: u64) -> Vec<f64> {
    assert!(index < SAMPLES_MAX && dimensions <= DIMENSIONS_MAX, "{index} of {dimensions}");
    let seed = (seed ^ (seed >> 32)) as u32;
    let coordinate = |d| f64::from(sobol_burley::sample(index, d, seed));
    (0..dimensions as u32).map(coordinate).collect()
}
