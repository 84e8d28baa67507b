// SPDX-License-Identifier: MIT OR Apache-2.0
//! ASMan (HPDC 2011).

use crate::Experiment;

pub const EXPERIMENTS: &[Experiment] = &[];
