// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chapter 5 of J. Shan's dissertation (NJIT 2018): asymmetric vCPUs.

use crate::Experiment;

pub const EXPERIMENTS: &[Experiment] = &[];
