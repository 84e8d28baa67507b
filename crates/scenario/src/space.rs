// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spaces: what scenarios are drawn from, by a seed.
//!
//! A draw hangs on the seed, on the scenario's number and on what is drawn alone, so that the first N
//! of 2 N scenarios are the same, and a longer list of locks changes no weights.

mod draw;

use crate::schema::names::is_name;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// Most scenarios of a seed.
pub const COUNT_MAX: u32 = 1000;

/// What scenarios are drawn from.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// How titles begin.
    pub title: String,
    draw: Lists,
    known: Known,
    /// What all scenarios have: keys of scenarios, with `host.pcpus`.
    scenario: Table,
    /// The arm that each scenario has.
    baseline: Table,
    /// Arms to draw from.
    arm: Vec<Table>,
}

/// Of each list a scenario has one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lists {
    vms: Vec<u32>,
    vcpus: Vec<u32>,
    /// Whether the VMs have one size and one lock, or each its own.
    alike: Vec<bool>,
    /// cpu.weight of the VMs in turn.
    weights: Vec<Vec<u32>>,
    pin: Vec<String>,
    cgroups: Vec<String>,
    kernels: Vec<String>,
    profiles: Vec<String>,
    locks: Vec<Value>,
    /// Arms of each, beside the baseline.
    arms: usize,
}

/// VMs that are alike and equal, with only these, are drawn again.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    vcpus: Vec<u32>,
    pin: Vec<String>,
    cgroups: Vec<String>,
    profiles: Vec<String>,
    locks: Vec<Value>,
}

/// What is drawn of one scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drawn {
    pub kernel: String,
    pub profile: String,
    pub pin: String,
    pub cgroups: String,
    pub vms: Vec<DrawnVm>,
    /// Names, the baseline's first.
    pub arms: Vec<String>,
    /// The scenario, as its file has it.
    pub text: String,
}

/// One VM of a scenario that is drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DrawnVm {
    pub vcpus: u32,
    /// cpu.weight.
    pub weight: u32,
    /// As scenarios write it.
    pub lock: Value,
}

/// A space that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    #[error("{0}")]
    Toml(String),
    #[error("`{key}`: {why}")]
    Wrong { key: String, why: String },
    #[error("no scenario can be drawn: in 1000 draws no VMs had more vCPUs than the host has pCPUs, an arm that is not the baseline, and something that is not known; make a list of [draw] longer, or one of [known] shorter")]
    Nothing,
}

impl Space {
    /// Reads a space.
    ///
    /// # Errors
    /// What is wrong in it, and what is allowed. What a scenario alone can judge, such as a lock's name,
    /// is judged when scenarios are read.
    pub fn parse(text: &str) -> Result<Space, SpaceError> {
        let space: Space = toml::from_str(text).map_err(|e| SpaceError::Toml(e.to_string()))?;
        space.check()?;
        Ok(space)
    }

    fn check(&self) -> Result<(), SpaceError> {
        let d = &self.draw;
        let wrong = |key: &str, why: &str| {
            Err(SpaceError::Wrong { key: key.to_string(), why: why.to_string() })
        };
        let lists = [
            ("draw.vms", d.vms.len()),
            ("draw.vcpus", d.vcpus.len()),
            ("draw.alike", d.alike.len()),
            ("draw.weights", d.weights.len()),
            ("draw.pin", d.pin.len()),
            ("draw.cgroups", d.cgroups.len()),
            ("draw.kernels", d.kernels.len()),
            ("draw.profiles", d.profiles.len()),
            ("draw.locks", d.locks.len()),
        ];
        if let Some((key, _)) = lists.iter().find(|(_, len)| *len == 0) {
            return wrong(key, "a choice of nothing; it is a list with one value or more");
        }
        if d.weights.iter().any(Vec::is_empty) {
            return wrong("draw.weights", "a list of no weights; each has one or more");
        }
        let may_differ = d.cgroups.iter().any(|c| c != "flat");
        if !may_differ && d.weights.iter().any(|w| w.iter().any(|x| *x != w[0])) {
            return wrong("draw.cgroups", "weights that differ need a layout other than flat");
        }
        if self.pcpus().is_none() {
            return wrong("scenario.host.pcpus", "missing; it is an integer from 1 to 1024 pCPUs");
        }
        if !(1..=self.arm.len()).contains(&d.arms) {
            let why = format!("{}; it is from 1 to the {} of [[arm]]", d.arms, self.arm.len());
            return wrong("draw.arms", &why);
        }
        let nameless = |arm: &&Table| !arm_name(arm).is_some_and(is_name);
        if self.arm.iter().chain([&self.baseline]).any(|arm| nameless(&arm)) {
            return wrong("arm", "each has a name of small letters, digits, - and _");
        }
        Ok(())
    }

    /// Of the host.
    fn pcpus(&self) -> Option<u32> {
        let pcpus = self.scenario.get("host")?.as_table()?.get("pcpus")?.as_integer()?;
        u32::try_from(pcpus).ok()
    }

    /// Scenario number `index`, from 0, of that seed.
    ///
    /// # Errors
    /// Where no draw is a scenario.
    pub fn scenario(&self, seed: u64, index: u32) -> Result<Drawn, SpaceError> {
        draw::scenario(self, seed, index)
    }
}

fn arm_name(arm: &Table) -> Option<&str> {
    arm.get("name")?.as_str()
}

/// The seed of a release: other scenarios with each, and the same of all who have it.
pub fn seed_of_release(version: &str) -> u64 {
    draw::number(&format!("release {version}"))
}
