// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decisions of `unspin shape`, without a clock, random numbers or files: the caller passes all
//! input. The property tests are in `unspin-policy`, which includes these modules.
//!
//! * [`alike`]: whether vCPUs differ in their needs.
//! * [`asym`]: CPU time, latency and cores by what each vCPU can use (dissertation, section 5.4).
//! * [`due`]: raises the weight of a VM whose vCPUs have unequal weights.
//! * [`lasting`]: needs that last for longer than a period.

pub mod alike;
pub mod asym;
pub mod due;
pub mod lasting;
