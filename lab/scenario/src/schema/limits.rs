// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits that several keys or other crates use.

use unspin_uapi::Number;

/// Windows in scenarios, TSC cycles. Stricter than the module: a window up to KVM's gap (128)
/// cannot detect loops.
pub const WINDOW_MIN_CYCLES: u32 = 128;
pub const WINDOW_MAX_CYCLES: u32 = Number::WINDOW_MAX.most();

pub(crate) const PCPUS_MAX: u32 = 1024;
pub(crate) const VMS_MAX: u32 = 64;
pub(crate) const ARMS_MAX: usize = 1000;
/// A Linux guest's memory is in one piece below the hole for devices.
pub(crate) const MEMORY_MIN_MIB: u32 = 96;
pub(crate) const MEMORY_MAX_MIB: u32 = 2048;
/// Limit of the cost of anything on a modelled host, cycles.
pub(crate) const COST_MAX_CYCLES: u32 = 10_000_000;
pub(crate) const PERIOD_MAX_MS: u32 = 1000;
pub(crate) const MS_MAX: u64 = 3_600_000;

/// Sizes for which the guest is built (guest/abi.h).
pub(crate) const STEPS_MAX: usize = 32;
pub(crate) const LOCKS_MAX: u32 = 16;
/// Longest single length, loop iterations (timer cycles for `block`).
pub(crate) const ITERATIONS_MAX: u32 = 1_000_000_000;
