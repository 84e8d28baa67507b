// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads spaces from their files.

use crate::schema::names::is_name;
use serde::Deserialize;
use toml::{Table, Value};
use unspin_text::{printable, toml_problems, Problems};

/// A space from which scenarios are drawn.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// The beginning of titles.
    pub title: String,
    pub(super) draw: Lists,
    pub(super) known: Known,
    /// Common to all scenarios: keys of scenarios, with `host.pcpus`.
    pub(super) scenario: Table,
    /// The arm that each scenario has.
    pub(super) baseline: Table,
    /// Arms to draw from.
    pub(super) arm: Vec<Table>,
}

/// A scenario has one value of each list.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lists {
    pub(super) vms: Vec<u32>,
    pub(super) vcpus: Vec<u32>,
    /// Whether the VMs share one size and one lock.
    pub(super) alike: Vec<bool>,
    /// cpu.weight of the VMs in turn.
    pub(super) weights: Vec<Vec<u32>>,
    pub(super) pin: Vec<String>,
    pub(super) cgroups: Vec<String>,
    pub(super) kernels: Vec<String>,
    pub(super) profiles: Vec<String>,
    pub(super) locks: Vec<Value>,
    /// Numbers of arms besides the baseline.
    pub(super) arms: usize,
}

/// Identical VMs with equal weights and only these values are drawn again.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    pub(super) vcpus: Vec<u32>,
    pub(super) pin: Vec<String>,
    pub(super) cgroups: Vec<String>,
    pub(super) profiles: Vec<String>,
    pub(super) locks: Vec<Value>,
}

/// An error in a space.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    #[error("{0}")]
    Toml(Problems),
    #[error("{file}: `{key}`: {why}")]
    Wrong { file: String, key: String, why: String },
    #[error(
        "no scenario can be drawn: none of 1000 draws had more vCPUs than pCPUs, an arm \
             besides the baseline, and an unknown value; extend a list of [draw], or shorten a \
             list of [known]"
    )]
    Nothing,
}

impl Space {
    /// Reads a space. `file` is its name in errors.
    ///
    /// # Errors
    ///
    /// An error in the file, with the allowed values. Values that only a scenario can check, such
    /// as a lock's name, are checked when scenarios are read.
    pub fn parse(file: &str, text: &str) -> Result<Space, SpaceError> {
        let read = toml::from_str(text);
        let space: Space = read.map_err(|e| SpaceError::Toml(toml_problems(file, text, &e)))?;
        space.check(file)?;
        Ok(space)
    }

    fn check(&self, file: &str) -> Result<(), SpaceError> {
        let d = &self.draw;
        let wrong = |key: &str, why: &str| {
            let (file, key) = (printable(file), key.to_string());
            Err(SpaceError::Wrong { file, key, why: why.to_string() })
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
            return wrong(key, "an empty choice; it is a list with one value or more");
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
    pub(super) fn pcpus(&self) -> Option<u32> {
        let pcpus = self.scenario.get("host")?.as_table()?.get("pcpus")?.as_integer()?;
        u32::try_from(pcpus).ok()
    }
}

pub(super) fn arm_name(arm: &Table) -> Option<&str> {
    arm.get("name")?.as_str()
}
