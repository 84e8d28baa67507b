// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quotas of VMs (cpu.max), and the sweep over the VM that has its quota.

use crate::parse::sweep::SweepKeys;
use crate::schema::arm::{Arm, CoschedulingMechanism};
use crate::schema::host::{CgroupLayout, HostScheduler};
use crate::schema::scenario::{usual_layout, Host, VmGroup};
use unspin_text::Table;

/// The parts of a scenario that affect quotas.
pub(crate) struct Quotas<'a> {
    pub groups: &'a [VmGroup],
    pub arms: &'a [Arm],
    pub host: &'a Host,
    /// The scenario has cases.
    pub by_case: bool,
}

/// Checks that each quota has an effect, and is the only limit of its VM.
pub(crate) fn check_quotas(top: &Table, of: &Quotas, sweep: &SweepKeys) {
    check_sweep(top, of, sweep);
    let Some(at) = top.get("vm").filter(|_| of.groups.iter().any(|g| g.quota_ppm.is_some())) else {
        return;
    };
    let usual = || vec![usual_layout(of.groups.iter())];
    let layouts = sweep.cgroups.clone().filter(|_| !of.by_case).unwrap_or_else(usual);
    if layouts.contains(&CgroupLayout::Flat) {
        at.problem(
            "a quota is cpu.max of the VM's cgroup, and in the layout flat it has none",
            "sweep.cgroups without \"flat\"",
        );
    }
    if of.host.scheduler != HostScheduler::Fair {
        at.problem(
            "a quota with a scheduler that caps by itself, or does not support cpu.max",
            "scheduler = \"fair\" in [host], or without it",
        );
    }
    let is_ext = |arm: &Arm| {
        use CoschedulingMechanism::{SchedExt, Scheduler};
        matches!(arm.coscheduling_mechanism, SchedExt | Scheduler)
    };
    if of.arms.iter().any(is_ext) {
        at.problem(
            "a scheduler of sched_ext does not support cpu.max",
            "no quota together with sched-ext or scheduler in an arm",
        );
    }
}

/// Checks that each point names the VM with a quota.
fn check_sweep(top: &Table, of: &Quotas, sweep: &SweepKeys) {
    let (Some(names), Some(at)) = (&sweep.quota_on, top.get("sweep")) else { return };
    if sweep.says.profiles || sweep.says.vms || sweep.beside.is_some() || of.by_case {
        at.problem(
            "sweep.quota_on already sets the points",
            "no profiles, vms or beside in [sweep], and no [[case]]",
        );
    }
    let has_quota = |name: &String| {
        of.groups.iter().any(|g| g.name.as_ref() == Some(name) && g.quota_ppm.is_some())
    };
    if let Some(name) = names.iter().find(|name| !has_quota(name)) {
        at.problem(
            format!("quota_on names {name:?}, and no [[vm]] with that name has a quota"),
            "names of [[vm]] tables that have quota",
        );
    }
}
