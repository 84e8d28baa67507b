// SPDX-License-Identifier: MIT OR Apache-2.0
//! What rows of one VM say besides: what it got, what it is there, and how soon it answered.

use serde::Serialize;
use unspin_scenario::plan::Role;

/// What a VM is where arms make vCPUs asymmetric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Standing {
    pub role: Role,
    /// Who is beside it: `hogs`, VMs that are shaped like it (`alike`), or `none` of either.
    pub beside: &'static str,
}

/// How long after its time a program's pass ended.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Response {
    pub mean_us: Option<f64>,
    /// `None` under 1,000 samples, as the next.
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    /// `None` under 10,000 samples.
    pub p999_us: Option<f64>,
    pub samples: u64,
}

/// What one VM got of the host, medians over repeats.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Share {
    /// CPU time of its vCPUs, of that of all pCPUs.
    pub cpu: Option<f64>,
    /// Time of its own turns, of the window; VMs may have turns at the same time. `None` where no VM
    /// of the runs had any.
    pub turn: Option<f64>,
}
