// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a vCPU spins in user space, judged from samples of its position (policy/userspin.h).
//! Ours.
//!
//! ```
//! use unspin_policy::userspin::{has_pause, Kind, Params, Sample, State};
//!
//! let mut vcpu = State::new();
//! for _ in 0..8 {
//!     vcpu.add(&Sample::user(0x7f00_1004)); // once per tick of the host
//! }
//! let verdict = vcpu.judge(&Params::default());
//! assert_eq!(verdict.kind(), Kind::Loop);
//! // `pause; cmp (%rdi),%eax; je` there, read from the guest: it spins.
//! assert_eq!(verdict.code(), Some((0x7f00_0ff4, 32)));
//! assert!(has_pause(&[0xf3, 0x90, 0x3b, 0x07, 0x74, 0xfa]));
//! ```

use crate::sys;

/// Most samples of a vCPU that are kept.
pub const SAMPLES_MAX: usize = 16;
/// Most bytes between the samples of a loop.
pub const RANGE_MAX_BYTES: u32 = 256;
/// Largest distance of a loop's PAUSE from a sample.
pub const MARGIN_BYTES: u32 = 16;
/// Most bytes of code that [`Verdict::code`] asks for.
pub const CODE_MAX_BYTES: u32 = RANGE_MAX_BYTES + 2 * MARGIN_BYTES;

/// Limits for a loop, and for still registers. docs/userspin.md explains the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Number of last samples that count, 1 to [`SAMPLES_MAX`].
    pub samples: u32,
    /// Samples close together that form a loop, 1 to `samples`.
    pub threshold: u32,
    /// Samples with equal registers that count as still, 1 to `samples`.
    pub still: u32,
    /// Size of the range of close samples, in bytes, 1 to [`RANGE_MAX_BYTES`].
    pub range_bytes: u32,
}

impl Default for Params {
    fn default() -> Self {
        Params { samples: 8, threshold: 4, still: 7, range_bytes: 64 }
    }
}

crate::param_error! {
    Samples = "samples is not in 1..16",
    Threshold = "threshold is not in 1..samples",
    Still = "still is not in 1..samples",
    Range = "range_bytes is not in 1..256",
}

impl Params {
    /// Whether the parameters are valid. [`State::judge`] stays within bounds either way.
    pub fn check(&self) -> Result<(), ParamError> {
        // SAFETY: a valid reference for the duration of the call.
        ParamError::of(unsafe { sys::userspin_params_check(self) })
    }
}

/// A sample of a vCPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The instruction pointer.
    pub address: u64,
    /// [`digest`] of the other registers; 0: unknown.
    pub registers: u64,
    /// Whether it is at CPL 3 (0 or 1).
    pub user: u8,
    /// 0.
    pub pad: [u8; 7],
}

impl Sample {
    /// A sample in user space with unknown registers.
    pub fn user(address: u64) -> Sample {
        Sample { address, user: 1, ..Sample::default() }
    }
}

/// The last samples of a vCPU. Plain data: a copy is a snapshot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub samples: [Sample; SAMPLES_MAX],
    /// Index of the next sample.
    pub next: u32,
    /// Number of samples.
    pub count: u32,
}

/// A vCPU's activity in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No loop in user space, or too few samples so far.
    No,
    /// A short loop: it computes or spins. PAUSE in its code decides.
    Loop,
    /// A short loop in which no register changes: it spins.
    StillLoop,
}

/// The result of a judgement.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The lowest sampled address of the loop.
    pub low: u64,
    /// The highest sampled address of the loop.
    pub high: u64,
    /// Number of samples in that range, for any kind.
    pub in_range: u32,
    /// The value in C; see [`Verdict::kind`].
    pub kind: u32,
}

impl Verdict {
    pub fn kind(&self) -> Kind {
        match self.kind {
            0 => Kind::No,
            1 => Kind::Loop,
            _ => Kind::StillLoop,
        }
    }

    /// The code in which the loop's PAUSE would be: its address, and its length in bytes. `None`
    /// without a loop.
    pub fn code(&self) -> Option<(u64, u32)> {
        let mut from = 0;
        // SAFETY: valid references for the duration of the call.
        let bytes = unsafe { sys::userspin_code(self, &mut from) };
        (bytes > 0).then_some((from, bytes))
    }
}

impl State {
    /// No samples yet.
    pub fn new() -> State {
        let mut state = State::default();
        // SAFETY: a valid reference for the duration of the call.
        unsafe { sys::userspin_init(&mut state) };
        state
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: &Sample) {
        // SAFETY: valid references for the duration of the call.
        unsafe { sys::userspin_add(self, sample) }
    }

    /// Judges the last samples.
    pub fn judge(&self, params: &Params) -> Verdict {
        let mut verdict = Verdict::default();
        // SAFETY: valid references for the duration of the call.
        unsafe { sys::userspin_judge(self, params, &mut verdict) };
        verdict
    }
}

/// Whether PAUSE, TPAUSE or UMWAIT is among these bytes of code.
pub fn has_pause(code: &[u8]) -> bool {
    let bytes = u32::try_from(code.len()).unwrap_or(u32::MAX);
    // SAFETY: at least this many bytes can be read.
    unsafe { sys::userspin_has_pause(code.as_ptr(), bytes) != 0 }
}

/// A hash of register values, never 0.
pub fn digest(registers: &[u64]) -> u64 {
    let count = u32::try_from(registers.len()).unwrap_or(u32::MAX);
    // SAFETY: at least this many can be read.
    unsafe { sys::userspin_digest(registers.as_ptr(), count) }
}

const _: () = {
    assert!(std::mem::size_of::<Sample>() == 24);
    assert!(std::mem::size_of::<State>() == 392);
    assert!(std::mem::size_of::<Verdict>() == 24);
};
