// SPDX-License-Identifier: MIT OR Apache-2.0
//! APLE: one VM's pause-loop-exit window, adapted once an epoch.
//!
//! Shan, Ding, Gehani, "APPLES", IEEE TPDS 2017, sections 3.1.2 to 3.1.4, Algorithm 1.
//!
//! ```
//! use unspin_policy::aple::{Epoch, Params, State};
//!
//! let params = Params::default();
//! let mut aple = State::new(&params);
//! assert_eq!(aple.window_cycles, 8192);
//! // 1000 exits that each burnt the window of 8192 cycles and 5000 more to handle
//! let epoch = Epoch {
//!     ple_exits: 1000,
//!     spin_cycles: 8_192_000,
//!     switch_cycles: 5_000_000,
//!     cpu_cycles: 100_000_000,
//! };
//! assert_eq!(epoch.inefficiency_ppm(), 131_920);
//! assert_eq!(aple.epoch_end(&params, &epoch), 16_384); // the round's second epoch: Td + step
//! ```

use crate::sys;
use unspin_uapi::Number;

/// Parameters of Algorithm 1, in TSC cycles; the default is the paper's section 4.1, with a step that adapts and a
/// longer window that is charged for the spinning it adds, which are ours. [`Params::paper`] has the paper's step,
/// measure and epochs. What is measured differs in one point: see [`Epoch::switch_cycles`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// T0, the window of a VM that just started.
    pub window_init_cycles: u32,
    /// Tl, at least 1.
    pub window_min_cycles: u32,
    /// Tu, at least `window_min_cycles`.
    pub window_max_cycles: u32,
    /// δ; 0 keeps the window fixed at T0.
    pub delta_cycles: u32,
    /// PLE exits an epoch, at least 1. Counted by the caller.
    pub epoch_ple_exits: u32,
    /// Where δ starts. It halves when a round keeps the window or turns back, doubles when two
    /// rounds in a row move it the same way, and stays within `delta_cycles..=delta_max_cycles`. At or below
    /// `delta_cycles`: δ never changes, and windows are compared by [`Epoch::inefficiency_ppm`], as in the paper.
    pub delta_max_cycles: u32,
    /// An epoch lasts at least this long, however many PLE exits it has, in microseconds. Measured
    /// by the caller; 0: exits alone end an epoch.
    pub epoch_min_us: u32,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            window_init_cycles: Number::WINDOW_INIT.default(),
            window_min_cycles: Number::WINDOW_MIN.default(),
            window_max_cycles: Number::WINDOW_MAX.default(),
            delta_cycles: Number::DELTA.default(),
            epoch_ple_exits: Number::EPOCH.default(),
            delta_max_cycles: Number::DELTA_MAX.default(),
            epoch_min_us: Number::EPOCH_MIN.default(),
        }
    }
}

impl Params {
    /// Whether the parameters are valid. All functions are safe with invalid ones, too.
    pub fn check(&self) -> Result<(), &'static str> {
        let texts = [
            "window_init_cycles is outside window_min_cycles..window_max_cycles",
            "window_min_cycles is 0",
            "window_max_cycles is below window_min_cycles",
            "delta_cycles is above window_max_cycles",
            "epoch_ple_exits is 0",
            "delta_max_cycles is above window_max_cycles",
        ];
        // SAFETY: a valid reference for the duration of the call.
        crate::judged(unsafe { sys::aple_params_check(self) }, &texts)
    }

    /// A window that never changes, as the arms with a fixed threshold use.
    pub fn fixed(window_cycles: u32) -> Self {
        Params {
            window_init_cycles: window_cycles,
            window_min_cycles: window_cycles,
            window_max_cycles: window_cycles,
            delta_cycles: 0,
            delta_max_cycles: 0,
            ..Params::default()
        }
    }

    /// Algorithm 1, but for the measure ([`Epoch::switch_cycles`]): δ is 1024 cycles in every round,
    /// exits alone end an epoch.
    pub fn paper() -> Self {
        Params { delta_max_cycles: 1024, epoch_min_us: 0, ..Params::default() }
    }
}

/// What one VM spent during one epoch. Any values are valid.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    pub ple_exits: u64,
    /// Sum of the window in force at each exit.
    pub spin_cycles: u64,
    /// Sum of exit-handling time, less time scheduled out, which the paper counts.
    pub switch_cycles: u64,
    /// CPU time of all the VM's vCPUs in the epoch.
    pub cpu_cycles: u64,
}

impl Epoch {
    /// Where [`Epoch::inefficiency_ppm`] saturates: 10⁶ × 2³².
    pub const PPM_MAX: u64 = 1_000_000 << 32;

    /// Wasted share of CPU time in parts per million, rounded down (section 3.1.3):
    /// (spin + switch) / CPU. Above 10⁶ where handling exits took longer than the
    /// guest ran; 0 CPU cycles give 0 or [`Epoch::PPM_MAX`].
    pub fn inefficiency_ppm(&self) -> u64 {
        // SAFETY: a valid reference for the duration of the call.
        unsafe { sys::aple_inefficiency_ppm(self) }
    }
}

/// The state of one VM in Algorithm 1. Plain data: a copy is a snapshot for a replay.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Td.
    pub desired_cycles: u32,
    /// The window that the current epoch tries: Td, Td + step or Td − step, within bounds.
    pub window_cycles: u32,
    /// 0, 1 or 2: which of the round's epochs runs now.
    pub phase: u32,
    /// Window of the round's best epoch so far.
    pub best_cycles: u32,
    /// And what that epoch wasted, in parts per million: in comparison with the epoch with Td, so it may be negative.
    pub best_ppm: i64,
    /// What the round's epoch with Td spent.
    pub first: Epoch,
    /// Inefficiency of the last finished epoch.
    pub last_ppm: u64,
    pub epochs: u64,
    pub rounds: u64,
    /// δ of this round.
    pub step_cycles: u32,
    /// Which way the last round moved Td: −1, 0 or 1.
    pub moved: i32,
}

impl State {
    /// The first epoch of the first round, at T0.
    pub fn new(params: &Params) -> Self {
        let mut state = State::default();
        // SAFETY: valid references for the duration of the call.
        unsafe { sys::aple_init(&mut state, params) };
        state
    }

    /// One epoch ended: returns the window for the next, in cycles.
    pub fn epoch_end(&mut self, params: &Params, epoch: &Epoch) -> u32 {
        // SAFETY: valid references for the duration of the call.
        unsafe { sys::aple_epoch_end(self, params, epoch) }
    }
}

/// The window of one vCPU, in cycles, after a PLE exit that found no sibling without a core
/// ([`crate::hvs::Decision::Complete`]): twice the one in force, at most `window_max_cycles` or KVM's initial
/// window, whichever is longer; the same where `delta_cycles` is 0. Ours.
pub fn window_complete(params: &Params, window_cycles: u32, kvm_window_cycles: u32) -> u32 {
    // SAFETY: a valid reference for the duration of the call.
    unsafe { sys::aple_window_complete(params, window_cycles, kvm_window_cycles) }
}

const _: () = {
    assert!(std::mem::size_of::<Params>() == 28);
    assert!(std::mem::size_of::<Epoch>() == 32);
    assert!(std::mem::size_of::<State>() == 88);
};
