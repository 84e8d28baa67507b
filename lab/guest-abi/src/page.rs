// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page that guest and host share: a mirror of `guest/abi.h`; `tests/abi.rs` compares the two.

use unspin_scenario::result::RESPONSE_BUCKETS;

pub const MAGIC: u32 = 0x4e49_5053;
pub const VERSION: u32 = 7;
pub const VCPUS_MAX: usize = 128;
pub const STEPS_MAX: usize = 32;
pub const LOCKS_MAX: usize = 16;
pub const WAIT_BUCKETS: usize = 40;
pub const STALL_BUCKETS: usize = 32;

pub const RAM_BYTES: usize = 0x40_0000;
pub const GDT_ADDR: u64 = 0x1000;
pub const PML4_ADDR: u64 = 0x2000;
pub const PDPT_ADDR: u64 = 0x3000;
pub const PD_ADDR: u64 = 0x4000;
pub const TSS_ADDR: u64 = 0x8000;
pub const TSS_STRIDE: u64 = 0x80;
pub const CONFIG_ADDR: u64 = 0x1_0000;
pub const PROTECTED_ADDR: u64 = 0x1_8000;
pub const CALLS_ADDR: u64 = 0x1_c000;
pub const COUNTERS_ADDR: u64 = 0x2_0000;
pub const COUNTERS_STRIDE: u64 = 0x1000;
pub const IMAGE_ADDR: u64 = 0x10_0000;
pub const IMAGE_END: u64 = 0x20_0000;
pub const STACKS_ADDR: u64 = 0x20_0000;
pub const STACK_BYTES: u64 = 0x4000;

pub const CS_KERNEL: u16 = 0x08;
pub const DS_KERNEL: u16 = 0x10;
pub const DS_USER: u16 = 0x1b;
pub const CS_USER: u16 = 0x23;
pub const TR: u16 = 0x28;

pub const VECTOR_WAKE: u8 = 0x41;

pub const PORT_END: u16 = 0x5053;
pub const PORT_FAULT: u16 = 0x5054;

pub const STOPPED: u32 = 1;
pub const BAD_APIC: u32 = 3;
pub const BAD_KICK: u32 = 4;

pub const FEATURE_VMMCALL: u32 = 1;
pub const FEATURE_TAU: u32 = 2;
pub const FEATURE_SPIN: u32 = 4;

pub const OP_COMPUTE: u32 = 1;
pub const OP_LOCK: u32 = 2;
pub const OP_CRITICAL: u32 = 3;
pub const OP_UNLOCK: u32 = 4;
pub const OP_BARRIER: u32 = 5;
pub const OP_BLOCK: u32 = 6;
pub const OP_WAKE: u32 = 7;
pub const OP_SPIN_BARRIER: u32 = 8;
pub const OP_SHOOTDOWN: u32 = 9;
pub const OP_SHOOTDOWN_LAZY: u32 = 10;
pub const OP_COMPUTE_FIRST: u32 = 11;
pub const OP_COMPUTE_ROTATING: u32 = 12;
pub const OP_COMPUTE_MOVING: u32 = 13;
/// Passes of one vCPU before the next one gets the work of [`OP_COMPUTE_MOVING`].
pub const UNITS_PER_MOVE: u32 = 256;

pub const MEMORY_LEFT: u32 = 0;
pub const MEMORY_LAZY: u32 = 1;
pub const MEMORY_USED: u32 = 2;

pub const DIST_CONST: u32 = 0;
pub const DIST_UNIFORM: u32 = 1;
pub const DIST_EXP: u32 = 2;

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Step {
    pub op: u32,
    pub dist: u32,
    pub a: u32,
    pub b: u32,
    pub lock: u32,
    pub permille: u32,
    pub skip: u32,
    pub pad: u32,
}

/// The array starts on a cache line.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy)]
pub struct Steps(pub [Step; STEPS_MAX]);

/// A word alone on its cache line.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, Default)]
pub struct Aligned<T>(pub T);

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub magic: u32,
    pub version: u32,
    pub vcpus: u32,
    pub lock_kind: u32,
    pub cpl: u32,
    pub steps_count: u32,
    pub features: u32,
    pub lock_ticks_per_us: u32,
    pub seed: u64,
    pub lock_tau_ns: u64,
    pub lock_spin_ns: u64,
    pub report_log2_cycles: u32,
    pub tsc_ticks_per_us: u32,
    pub steps: Steps,
    pub stop: Aligned<u32>,
}

#[repr(C, align(64))]
#[derive(Debug, Clone, Copy)]
pub struct Counters {
    pub units: u64,
    pub acquisitions: u64,
    pub releases: u64,
    pub iterations: u64,
    pub max_wait_cycles: u64,
    pub wait_hist: [u64; WAIT_BUCKETS],
    pub stalls_free: [u64; STALL_BUCKETS],
    pub stalls_held: [u64; STALL_BUCKETS],
    pub responses: u64,
    pub response_cycles: u64,
    pub response_hist: [u64; RESPONSE_BUCKETS],
}

/// Requests of siblings for answers, and the answers of a vCPU.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, Default)]
pub struct Calls {
    pub asked: u32,
    pub answered: u32,
    pub memory: u32,
}

/// Stride of the words under the locks.
pub const PROTECTED_STRIDE: u64 = 64;
