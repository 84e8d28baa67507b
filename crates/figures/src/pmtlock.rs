// SPDX-License-Identifier: MIT OR Apache-2.0
//! Preemptable ticket spinlocks (VEE 2013).

use crate::Experiment;

pub const EXPERIMENTS: &[Experiment] = &[];
