// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chapter 4 of J. Shan's dissertation (NJIT 2018): the scalability model.

use crate::Experiment;

pub const EXPERIMENTS: &[Experiment] = &[];
