// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where arms are compared.

use serde::Serialize;
use unspin_scenario::plan::CgroupLayout;

/// A place at which arms are compared, profile by profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    pub vms: u32,
    pub cgroup: CgroupLayout,
    /// The lock under which arms are compared, if locks are swept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lock: String,
}

/// A comparison of arms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Point {
    pub profile: String,
    #[serde(flatten)]
    pub place: Place,
}
