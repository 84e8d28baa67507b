// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario and its workloads become a plan.

pub(crate) mod attribute;
pub(crate) mod hash;
pub(crate) mod points;
pub(crate) mod select;
pub(crate) mod split;
pub(crate) mod workload;
