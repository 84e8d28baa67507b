// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records as they were written: read, checked, each once, shares of a plan put together.

pub(crate) mod check;
pub(crate) mod dedupe;
pub(crate) mod input;
pub(crate) mod shards;
