// SPDX-License-Identifier: MIT OR Apache-2.0
//! A part of a scenario.

use crate::plan::Run;
use crate::schema::host::CgroupLayout;
use crate::schema::linux::GuestLock;
use crate::schema::lock::LockChoice;
use crate::schema::names::Named;
use crate::schema::scenario::{quota_point, Scenario, Sweep};
use unspin_text::names::nearest;

/// The part of a scenario to run. An empty list means all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection {
    /// The baseline is always included.
    pub arms: Vec<String>,
    pub profiles: Vec<String>,
    pub vms: Vec<u32>,
    pub cgroups: Vec<CgroupLayout>,
    /// Swept locks of Linux guests.
    pub guest_locks: Vec<GuestLock>,
    /// Labels of swept locks ([`LockChoice::label`]).
    pub locks: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    #[error("the scenario has no {what} {name:?}; allowed: {has}{}", hint(.suggestion))]
    NotInScenario { what: &'static str, name: String, has: String, suggestion: Option<String> },
    #[error("profile {0:?} was not read")]
    NoProfile(String),
    #[error("program {0:?} was not read")]
    NoProgram(String),
    #[error("host.pcpus = {pcpus}, but a VM is pinned to pCPU {wanted}")]
    NoPcpu { pcpus: u32, wanted: u32 },
    #[error("the row name {0:?} of a [[vm]] is too long; use a shorter name")]
    LongName(String),
}

fn hint(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map(|s| format!("; did you mean {s:?}?")).unwrap_or_default()
}

/// What points are named after, and all their names.
fn point_names(s: &Scenario) -> (&'static str, Vec<String>) {
    if !s.cases.is_empty() {
        return ("case", s.cases.iter().map(|case| case.name.clone()).collect());
    }
    match s.sweep.quota_on.as_slice() {
        [] => ("profile", s.sweep.profiles.clone()),
        groups => ("point", groups.iter().map(|group| quota_point(group)).collect()),
    }
}

pub(crate) fn check_selection(s: &Scenario, select: &Selection) -> Result<(), ExpandError> {
    fn texts<T>(all: &[T], text: impl Fn(&T) -> String) -> Vec<String> {
        all.iter().map(text).collect()
    }
    let (one, points) = point_names(s);
    let layout = |layout: &CgroupLayout| layout.called().to_string();
    let lock = |lock: &GuestLock| lock.called().to_string();
    let (sweep, arms) = (&s.sweep, texts(&s.arms, |arm| arm.name.clone()));
    let parts = [
        ("arm", select.arms.clone(), arms),
        (one, select.profiles.clone(), points),
        ("number of VMs", texts(&select.vms, u32::to_string), texts(&sweep.vms, u32::to_string)),
        ("cgroup layout", texts(&select.cgroups, layout), texts(&sweep.cgroups, layout)),
        (
            "swept lock of Linux guests",
            texts(&select.guest_locks, lock),
            texts(&sweep.guest_locks, lock),
        ),
        ("swept lock", select.locks.clone(), texts(&sweep.locks, LockChoice::label)),
    ];
    for (what, wanted, has) in parts {
        if let Some(name) = wanted.into_iter().find(|name| !has.contains(name)) {
            let suggestion = nearest(&name, has.iter().map(String::as_str)).map(str::to_string);
            let has = if has.is_empty() { "none".to_string() } else { has.join(", ") };
            return Err(ExpandError::NotInScenario { what, name, has, suggestion });
        }
    }
    Ok(())
}

pub(crate) fn selected(r: &Run, sweep: &Sweep, select: &Selection, baseline: &str) -> bool {
    fn among<T: PartialEq>(wanted: &[T], x: &T) -> bool {
        wanted.is_empty() || wanted.contains(x)
    }
    let linux = r.first().linux.as_ref();
    // A VM alone has no quota, so such a run is for all points.
    let is_for_all = r.alone && !sweep.quota_on.is_empty();
    (is_for_all || among(&select.profiles, &r.profile))
        && among(&select.locks, &r.lock_group)
        && linux.is_none_or(|linux| among(&select.guest_locks, &linux.guest.lock))
        && (r.alone
            || (among(&select.vms, &r.vm_count())
                && among(&select.cgroups, &r.cgroup)
                && (among(&select.arms, &r.arm.name) || r.arm.name == baseline)))
}
