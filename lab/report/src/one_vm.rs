// SPDX-License-Identifier: MIT OR Apache-2.0
//! Additional fields of rows of one VM: what it got, its role, and its response times.

use serde::Serialize;
use unspin_scenario::plan::Role;

/// The role of a VM in arms with asymmetric vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Standing {
    pub role: Role,
    /// Its neighbours: `hogs`, VMs that are shaped like it (`alike`), or `none`.
    pub beside: &'static str,
}

/// How long after its due time a program's pass ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Response {
    #[serde(rename = "response_mean_us")]
    pub mean_us: Option<f64>,
    /// `None` for fewer than 1,000 samples, as the next.
    #[serde(rename = "response_p50_us")]
    pub p50_us: Option<f64>,
    #[serde(rename = "response_p99_us")]
    pub p99_us: Option<f64>,
    /// `None` for fewer than 10,000 samples.
    #[serde(rename = "response_p999_us")]
    pub p999_us: Option<f64>,
    #[serde(rename = "response_samples")]
    pub samples: u64,
}

/// What one VM got from the host, medians over repeats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Share {
    /// CPU time of its vCPUs, as a share of all pCPUs' time.
    #[serde(rename = "cpu_share", skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Its own turns, as a share of the measuring time. VMs may have turns at the same time. `None`
    /// if no VM of the runs had any.
    #[serde(rename = "turn_share", skip_serializing_if = "Option::is_none")]
    pub turn: Option<f64>,
}
