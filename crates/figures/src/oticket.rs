// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opportunistic spinlocks (APSys 2015).

use crate::Experiment;

pub const EXPERIMENTS: &[Experiment] = &[];
