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
    let arms: Vec<&str> = s.arms.iter().map(|a| a.name.as_str()).collect();
    let (one, points) = point_names(s);
    let profiles: Vec<&str> = points.iter().map(String::as_str).collect();
    let missing = |what, name: &str, has: &[&str]| ExpandError::NotInScenario {
        what,
        name: name.to_string(),
        has: if has.is_empty() { "none".to_string() } else { has.join(", ") },
        suggestion: nearest(name, has.iter().copied()).map(str::to_string),
    };
    if let Some(a) = select.arms.iter().find(|a| !arms.contains(&a.as_str())) {
        return Err(missing("arm", a, &arms));
    }
    if let Some(p) = select.profiles.iter().find(|p| !profiles.contains(&p.as_str())) {
        return Err(missing(one, p, &profiles));
    }
    let counts: Vec<String> = s.sweep.vms.iter().map(u32::to_string).collect();
    if let Some(n) = select.vms.iter().find(|n| !s.sweep.vms.contains(n)) {
        let has: Vec<&str> = counts.iter().map(String::as_str).collect();
        return Err(missing("number of VMs", &n.to_string(), &has));
    }
    if let Some(c) = select.cgroups.iter().find(|c| !s.sweep.cgroups.contains(c)) {
        let has = format!("{:?}", s.sweep.cgroups).to_lowercase();
        return Err(missing("cgroup layout", &format!("{c:?}").to_lowercase(), &[&has]));
    }
    if let Some(l) = select.guest_locks.iter().find(|l| !s.sweep.guest_locks.contains(l)) {
        let has: Vec<&str> = s.sweep.guest_locks.iter().map(|l| l.called()).collect();
        return Err(missing("swept lock of Linux guests", l.called(), &has));
    }
    let locks: Vec<String> = s.sweep.locks.iter().map(LockChoice::label).collect();
    if let Some(l) = select.locks.iter().find(|l| !locks.contains(l)) {
        let has: Vec<&str> = locks.iter().map(String::as_str).collect();
        return Err(missing("swept lock", l, &has));
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
