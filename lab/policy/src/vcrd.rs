// SPDX-License-Identifier: MIT OR Apache-2.0
//! VCRD: whether the vCPUs of one VM should run together, and for how long.
//!
//! Weng, Liu, Yu, Li, "Dynamic Adaptive Scheduling for Virtual Machines" (ASMan), HPDC 2011,
//! sections 4.2 and 4.3, Algorithms 1 and 2.
//!
//! ```
//! use unspin_policy::vcrd::{Params, State};
//!
//! let params = Params::default();
//! let mut vcrd = State::new(&params);
//! assert!(!params.is_over_threshold(1 << 20));
//! assert!(params.is_over_threshold((1 << 20) + 1)); // an adjusting event, at 5 ms, say
//! assert_eq!(vcrd.event(&params, 5_000, 1 << 30), 50_000); // HIGH for 50 ms, by chance
//! assert!(vcrd.is_high(54_999));
//! assert!(!vcrd.is_high(55_000));
//! ```

use crate::sys;

extern "C" {
    static vcrd_defaults: Params;
}

/// Parameters of Algorithms 1 and 2. The paper prints only the threshold; the others are ours.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// δ, at most 63: a wait for a lock above 2^δ cycles is over-threshold.
    pub threshold_log2_cycles: u32,
    /// N, 1 to [`VALUES_MAX`]: the number of estimates.
    pub values: u32,
    /// The estimates are 1 to N times this, at least 1.
    pub step_us: u32,
    /// s(0), at least 1: scales the propensities that all values start with.
    pub initial_ppm: u32,
    /// r, at most 10⁶: how fast experience is forgotten.
    pub recency_ppm: u32,
    /// e, at most 10⁶: the part for values that were not tried.
    pub experiment_ppm: u32,
    /// Δ: an event within this time after the VCRD went LOW shows that it went LOW too early.
    pub margin_us: u32,
    /// Bound of Algorithm 2's quotient, 1 to 2²⁰; the largest is practically no bound. Ours.
    pub ratio_max: u32,
}

impl Default for Params {
    fn default() -> Self {
        // SAFETY: a constant of C, of this type.
        unsafe { vcrd_defaults }
    }
}

/// Largest number of possible values.
pub const VALUES_MAX: usize = 32;

impl Params {
    /// Whether the parameters are valid. All functions are safe with invalid ones, too.
    pub fn check(&self) -> Result<(), &'static str> {
        let texts = [
            "threshold_log2_cycles is above 63",
            "values is not in 1..32",
            "step_us is 0",
            "initial_ppm is 0",
            "recency_ppm is above 1000000",
            "experiment_ppm is above 1000000",
            "ratio_max is not in 1..1048576",
        ];
        // SAFETY: a valid reference for the duration of the call.
        crate::judged(unsafe { sys::vcrd_params_check(self) }, &texts)
    }

    /// Whether a wait for a spin-lock is over-threshold (section 4.2): an adjusting event.
    pub fn is_over_threshold(&self, waited_cycles: u64) -> bool {
        // SAFETY: a valid reference for the duration of the call.
        unsafe { sys::vcrd_is_over_threshold(self, waited_cycles) != 0 }
    }
}

/// The learner's state of one VM. Plain data: a copy is a snapshot for a replay.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// q of each possible value, in millionths.
    pub propensity_ppm: [u64; VALUES_MAX],
    /// Adjusting events so far.
    pub events: u64,
    /// Time of the last event.
    pub event_us: u64,
    /// The VCRD is HIGH until this time.
    pub high_until_us: u64,
    /// How much the interval before the last event was longer than its estimate, at least 1.
    pub over_us: u64,
    /// Time for which the last event set the VCRD HIGH.
    pub estimate_us: u64,
    /// Index of that value among the possible ones.
    pub estimate: u32,
    pub reserved: u32,
}

impl State {
    /// The VCRD is LOW, and all estimates are equally good.
    pub fn new(params: &Params) -> Self {
        let mut state = State::default();
        // SAFETY: valid references for the duration of the call.
        unsafe { sys::vcrd_init(&mut state, params) };
        state
    }

    /// An adjusting event: sets the VCRD HIGH from `now_us` on and returns for how many
    /// microseconds. `draw` is a random number, uniform over its range; only the first two events
    /// use it.
    pub fn event(&mut self, params: &Params, now_us: u64, draw: u32) -> u64 {
        // SAFETY: valid references for the duration of the call.
        unsafe { sys::vcrd_event(self, params, now_us, draw) }
    }

    /// Whether the VCRD is HIGH at `now_us`: all vCPUs of the VM should run together.
    pub fn is_high(&self, now_us: u64) -> bool {
        // SAFETY: a valid reference for the duration of the call.
        unsafe { sys::vcrd_is_high(self, now_us) != 0 }
    }
}

const _: () = {
    assert!(std::mem::size_of::<Params>() == 32);
    assert!(std::mem::size_of::<State>() == 304);
};
