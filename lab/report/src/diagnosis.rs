// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loss of a VM, by cause, in a row.

use serde::Serialize;
use std::collections::BTreeMap;
use unspin_diagnosis::{Cause, Sure};

/// The loss of a VM, all repeats together, as in `unspin diagnose`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The causes of its case; missing if it is not a case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injected: Option<Vec<Cause>>,
    /// The cause with the largest loss, or null.
    pub dominant: Option<Cause>,
    pub causes: Vec<Lost>,
    /// vCPU-seconds in each state, without states that have none.
    pub states: BTreeMap<&'static str, f64>,
    /// Share of the vCPUs' wall time in other exits and in the VMM.
    pub remainder: f64,
}

impl Diagnosis {
    /// Whether the dominant cause is an injected one, or there is none and none was injected.
    /// `None`: not a case.
    pub fn is_right(&self) -> Option<bool> {
        let injected = self.injected.as_ref()?;
        Some(match self.dominant {
            Some(cause) => injected.contains(&cause),
            None => injected.is_empty(),
        })
    }
}

/// The loss to a cause; null if unknown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lost {
    pub cause: Cause,
    pub lost_s_per_s: Option<f64>,
    /// Share of the vCPUs' wall time, 0 to 1.
    pub share: Option<f64>,
    pub sure: Sure,
}
