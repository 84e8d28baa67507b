// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `unspin shape` decides, without a clock, random numbers or files: the caller passes all of it.
//! Its property tests are those of `unspin-policy`, which has these modules too.
//!
//! * [`alike`]: whether vCPUs differ at all in what they need (ours).
//! * [`asym`]: CPU time, latency and cores by what each vCPU can use (dissertation, section 5.4).
//! * [`due`]: by how much a VM's weight is raised whose vCPUs have unequal ones (ours).
//! * [`lasting`]: what a vCPU needs for longer than a period (ours).

pub mod alike;
pub mod asym;
pub mod due;
pub mod lasting;
