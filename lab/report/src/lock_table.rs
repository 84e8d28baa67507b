// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks against host policies: the figures of one kernel, relative to those of one lock on stock
//! KVM.

use crate::stat::Verdict;
use std::collections::BTreeMap;

/// The reference lock, under the baseline arm with as many VMs.
pub(crate) const BASE_LOCK: &str = "ticket";

/// One kernel's results.
#[derive(Debug, Clone, PartialEq)]
pub struct LockTable {
    pub(crate) kernel: String,
    /// The origin of the figures, in a sentence.
    pub(crate) origin: String,
    /// Notes about lost or omitted results.
    pub(crate) notices: Vec<String>,
    pub(crate) profiles: Vec<String>,
    pub(crate) vms: Vec<u32>,
    pub(crate) locks: Vec<String>,
    pub(crate) arms: Vec<String>,
    pub(crate) baseline: String,
    pub(crate) cells: BTreeMap<CellKey, Figures>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CellKey {
    pub profile: String,
    pub vms: u32,
    pub lock: String,
    pub arm: String,
}

/// One cell's figures, over all VMs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figures {
    pub performance: f64,
    /// `None` for the reference cell.
    pub verdict: Option<Verdict>,
    pub ratios: Vec<f64>,
    /// Share of CPU time spent spinning up to exits and handling them; unknown without PLE.
    pub inefficiency: Option<f64>,
    pub kicks_per_s: Option<f64>,
    /// Jain's index over all vCPUs of all VMs.
    pub fairness: Option<f64>,
    /// The arm changes only APLE, and APLE never moved a window.
    pub is_still: bool,
}

impl LockTable {
    pub(crate) fn cell(&self, profile: &str, vms: u32, lock: &str, arm: &str) -> Option<&Figures> {
        let [profile, lock, arm] = [profile, lock, arm].map(str::to_string);
        self.cells.get(&CellKey { profile, vms, lock, arm })
    }
}
