// SPDX-License-Identifier: MIT OR Apache-2.0
//! APPLES (TPDS 2017).

use crate::Experiment;

pub const EXPERIMENTS: &[Experiment] = &[];
