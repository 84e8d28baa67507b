// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long waits in a summary.

use serde::Serialize;

/// The long waits of one arm at one point, all VMs and repeats together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StallRow {
    pub profile: String,
    pub vms: u32,
    pub lock: String,
    pub arm: String,
    /// N of table 1.
    pub acquisitions: u64,
    pub waits: Vec<StallCount>,
}

/// Waits that reached this many iterations of their loop, by the state of the lock at that moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StallCount {
    pub turns: u64,
    /// N_h and N_w of table 1.
    pub held: u64,
    pub free: u64,
    /// N_w ÷ (N_h + N_w); `None` without stalls.
    pub free_share: Option<f64>,
}
