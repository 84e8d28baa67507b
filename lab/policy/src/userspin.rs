// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a vCPU spins in user space, judged from samples of its position (policy/userspin.h).
//! Ours.
//! The kernel module decides by it; in Rust there are the forms of its structures, for its checks.

/// Most samples of a vCPU that are kept.
pub const SAMPLES_MAX: usize = 16;
/// Most bytes between the samples of a loop.
pub const RANGE_MAX_BYTES: u32 = 256;

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

/// A sample of a vCPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The instruction pointer.
    pub address: u64,
    /// A hash of the other registers; 0: unknown.
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
    /// 0: no loop in user space, or too few samples so far; 1: a short loop, which spins if its code has
    /// PAUSE; 2: a short loop in which no register changes, which spins.
    pub kind: u32,
}

const _: () = {
    assert!(std::mem::size_of::<Sample>() == 24);
    assert!(std::mem::size_of::<State>() == 392);
    assert!(std::mem::size_of::<Verdict>() == 24);
};
