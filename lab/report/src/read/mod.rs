// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads records, checks them, removes duplicates, and joins shares of a plan.

pub(crate) mod check;
pub(crate) mod dedupe;
pub(crate) mod input;
pub(crate) mod shards;
