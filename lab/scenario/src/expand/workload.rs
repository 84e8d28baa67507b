// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads of VMs: a profile, or for a Linux guest a program. Both kinds have names of their
//! own, which may be equal.

use crate::expand::select::ExpandError;
use crate::schema::linux::GuestProgram;
use crate::schema::program::{Profile, Step};
use crate::schema::scenario::{Scenario, VmGroup};
use std::collections::BTreeMap;

/// The workloads that were read, by name, with their texts.
#[derive(Debug, Clone, Default)]
pub struct Workloads {
    pub profiles: BTreeMap<String, (Profile, String)>,
    pub programs: BTreeMap<String, (GuestProgram, String)>,
}

impl From<BTreeMap<String, (Profile, String)>> for Workloads {
    fn from(profiles: BTreeMap<String, (Profile, String)>) -> Workloads {
        Workloads { profiles, ..Workloads::default() }
    }
}

impl Workloads {
    /// The workloads that the scenario names.
    pub(crate) fn of(&self, scenario: &Scenario) -> Result<Used<'_>, ExpandError> {
        Ok(Used {
            profiles: named(&self.profiles, scenario.profile_names(), ExpandError::NoProfile)?,
            programs: named(
                &self.programs,
                scenario.guest_program_names(),
                ExpandError::NoProgram,
            )?,
        })
    }
}

/// Those of `all` with these names.
fn named<T>(
    all: &BTreeMap<String, T>,
    names: Vec<String>,
    missing: fn(String) -> ExpandError,
) -> Result<BTreeMap<&str, &T>, ExpandError> {
    let named = |name: String| match all.get_key_value(&name) {
        Some((name, read)) => Ok((name.as_str(), read)),
        None => Err(missing(name)),
    };
    names.into_iter().map(named).collect()
}

/// The workloads of a scenario.
pub(crate) struct Used<'a> {
    profiles: BTreeMap<&'a str, &'a (Profile, String)>,
    programs: BTreeMap<&'a str, &'a (GuestProgram, String)>,
}

impl<'a> Used<'a> {
    /// The workload of a group, if `swept` is the swept one.
    pub(crate) fn work(&self, g: &VmGroup, swept: &str) -> Work<'a> {
        let name = g.workload.as_deref().unwrap_or(swept);
        match g.linux {
            None => Work::Profile(&self.profiles[name].0),
            Some(_) => Work::Program(&self.programs[name].0),
        }
    }

    /// Their texts, with a mark that distinguishes profiles and programs.
    pub(crate) fn texts(&self) -> Vec<(String, &'a str)> {
        let profiles = self.profiles.iter().map(|(name, (_, text))| (name.to_string(), &**text));
        let programs = self.programs.iter().map(|(name, (_, text))| (format!("{name}@"), &**text));
        profiles.chain(programs).collect()
    }
}

/// The workload of a VM.
#[derive(Clone, Copy)]
pub(crate) enum Work<'a> {
    Profile(&'a Profile),
    Program(&'a GuestProgram),
}

impl<'a> Work<'a> {
    pub(crate) fn name(self) -> &'a str {
        match self {
            Work::Profile(profile) => &profile.name,
            Work::Program(program) => &program.name,
        }
    }

    /// Whether it counts in means over workloads that spin. Every program does, because none was
    /// selected by that.
    pub(crate) fn spin_intensive(self) -> bool {
        match self {
            Work::Profile(profile) => profile.spin_intensive,
            Work::Program(_) => true,
        }
    }

    /// The steps of each thread; empty for a program, whose steps are unknown.
    pub(crate) fn steps(self) -> Vec<Step> {
        match self {
            Work::Profile(profile) => profile.program.clone(),
            Work::Program(_) => Vec::new(),
        }
    }
}
