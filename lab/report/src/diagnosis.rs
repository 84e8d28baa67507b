// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a VM lost, and to which causes, in a row.

use serde::Serialize;
use std::collections::BTreeMap;
use unspin_diagnosis::{Cause, Sure};

/// What a VM lost, all repeats together, as in `unspin diagnose`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The causes of its case; no key if it is no case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injected: Option<Vec<Cause>>,
    /// The cause that costs most, or null.
    pub dominant: Option<Cause>,
    pub causes: Vec<Lost>,
    /// vCPU-seconds in each state; those without any are left out.
    pub states: BTreeMap<&'static str, f64>,
    /// Share of the vCPUs' wall time in other exits and in the VMM.
    pub remainder: f64,
}

impl Diagnosis {
    /// Whether the dominant cause is an injected one, or there is none and none was injected.
    /// `None`: it is no case.
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
    /// Of the vCPUs' wall time, 0 to 1.
    pub share: Option<f64>,
    pub sure: Sure,
}
