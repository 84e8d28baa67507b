// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chapter 2 of J. Shan's dissertation (NJIT 2018): five factors.

use crate::Experiment;

pub const EXPERIMENTS: &[Experiment] = &[];
