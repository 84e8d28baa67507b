// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first record: the request, the machine, and the code of the records.

use crate::plan::{Plan, SCHEMA};
use crate::world::World;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The agent's computer and its request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    pub schema: u32,
    pub scenario: String,
    pub scenario_hash: String,
    /// `uname -r`.
    pub kernel: String,
    pub cpu_model: String,
    pub pcpus: u32,
    /// `None` if KVM does not tell it.
    pub tsc_khz: Option<u64>,
    /// Version of the loaded module, `None` without it.
    pub module: Option<String>,
    /// `vmx`, `svm`, or `none: reason`; `None` without the module.
    pub window_control: Option<String>,
    /// Host settings that matter for the figures (halt_poll_ns, slice, ple_gap …).
    pub settings: BTreeMap<String, String>,
    /// Name of the machine (`kvm`, `emulated`, `sim`, `threads`); set by the program that started
    /// the agent, as are the next four.
    #[serde(default)]
    pub machine: String,
    #[serde(default)]
    pub title: String,
    /// Commit and version of unspin that wrote the record.
    #[serde(default)]
    pub commit: Option<String>,
    #[serde(default)]
    pub version: Option<String>,
    /// SHA-256, in hex, of the code behind the figures: module, policies, agent and guest.
    #[serde(default)]
    pub image: Option<String>,
    /// The share of a plan that these records are, if it was divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// The world of these records, if unknown values of the scenario were drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<World>,
}

impl Begin {
    /// The part that follows from a plan. The machine fills in the rest.
    pub fn of(plan: &Plan) -> Begin {
        Begin {
            schema: SCHEMA,
            scenario: plan.scenario.clone(),
            scenario_hash: plan.scenario_hash.clone(),
            title: plan.title.clone(),
            ..Begin::default()
        }
    }
}

/// Share `index` of `of` of a plan's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// 1 to `of`.
    pub index: u32,
    pub of: u32,
    /// Runs of all shares together.
    pub runs: u32,
}
