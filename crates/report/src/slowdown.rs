// SPDX-License-Identifier: MIT OR Apache-2.0
//! A VM's slowdown, split among the five factors of virtualization's cost (NJIT 2018, chapter 2): by
//! accounting, and by what comes back without each (`unspin bench --attribute`).

use crate::stat::round;
use crate::summary::{CostNs, Row};
use serde::Serialize;
use std::collections::BTreeSet;
use unspin_scenario::plan::{CgroupLayout, Factor, PHYSICAL_ARM};
use unspin_scenario::result::RunResult;

/// One arm at one profile, number of VMs and cgroup layout.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlowdownRow {
    pub profile: String,
    pub vms: u32,
    pub cgroup: CgroupLayout,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lock: String,
    pub arm: String,
    /// Throughput of the program on the machine itself ÷ that of all VMs together − 1; null where
    /// VMs differ.
    pub slowdown: Option<f64>,
    /// In the order of the paper's sections.
    pub factors: Vec<FactorShare>,
    /// Spinning in the guests' kernels; ticks and switches to other VMs: shares of all vCPU time.
    pub kernel_spin: f64,
    pub other_host: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FactorShare {
    /// `idle-switch`, `spin-switch`, `ipi`, `user-spin` or `cache`.
    pub factor: &'static str,
    /// Of all vCPU time, what was spent on it.
    pub share: f64,
    /// Throughput without it ÷ throughput − 1: 0.1 is a tenth more. Null if it was off already.
    pub regained: Option<f64>,
}

/// Names of the arms that `--attribute` added: no arms of the scenario's.
pub(crate) fn check_arms(runs: &[&RunResult]) -> BTreeSet<String> {
    let is_check = |r: &&&RunResult| {
        let arm = &r.run.arm;
        let without = Factor::ALL.iter().any(|(name, factor)| {
            let base = arm.name.strip_suffix(&suffix(name));
            arm.platform.without.contains(factor)
                && base.is_some_and(|base| runs.iter().any(|x| x.run.arm.name == base))
        });
        without || (arm.platform.physical && arm.name == PHYSICAL_ARM)
    };
    runs.iter().filter(is_check).map(|r| r.run.arm.name.clone()).collect()
}

fn suffix(factor: &str) -> String {
    format!("-no-{factor}")
}

/// The rows of the scenario's own arms, and what the others say about each.
pub(crate) fn split(rows: Vec<Row>, checks: &BTreeSet<String>) -> (Vec<Row>, Vec<SlowdownRow>) {
    let (added, own): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|r| checks.contains(&r.arm) || r.baseline == PHYSICAL_ARM);
    let whole: Vec<&Row> = added.iter().filter(|r| r.vm_index.is_none()).collect();
    let slowdowns = own
        .iter()
        .filter(|r| r.vm_index.is_none() && r.same_as.is_none())
        .filter_map(|r| slowdown(r, &whole))
        .collect();
    (own, slowdowns)
}

fn slowdown(r: &Row, added: &[&Row]) -> Option<SlowdownRow> {
    let cost = r.cost.filter(|_| !added.is_empty())?;
    let like = |x: &Row| (&x.profile, &x.lock, x.cgroup) == (&r.profile, &r.lock, r.cgroup);
    let against = |x: &Row| {
        let (x, r) = (x.throughput_per_s?, r.throughput_per_s?);
        (r > 0.0).then(|| round(x / r - 1.0))
    };
    let without = |name: &str| {
        let arm = r.arm.clone() + &suffix(name);
        let found = added.iter().find(|x| x.vms == r.vms && x.arm == arm && like(x));
        found.and_then(|x| against(x))
    };
    let all = total(&cost).max(1) as f64;
    let share = |ns: u64| round(ns as f64 / all);
    let ns =
        [cost.idle_switch_ns, cost.spin_switch_ns, cost.ipi_ns, cost.user_spin_ns, cost.cache_ns];
    let factors = Factor::ALL.iter().zip(ns);
    Some(SlowdownRow {
        profile: r.profile.clone(),
        vms: r.vms,
        cgroup: r.cgroup,
        lock: r.lock.clone(),
        arm: r.arm.clone(),
        slowdown: added.iter().find(|x| x.arm == PHYSICAL_ARM && like(x)).and_then(|x| against(x)),
        factors: factors
            .map(|((factor, _), ns)| FactorShare {
                factor,
                share: share(ns),
                regained: without(factor),
            })
            .collect(),
        kernel_spin: share(cost.kernel_spin_ns),
        other_host: share(cost.other_host_ns),
    })
}

fn total(c: &CostNs) -> u64 {
    let factors = c.idle_switch_ns + c.spin_switch_ns + c.ipi_ns + c.user_spin_ns + c.cache_ns;
    c.work_ns + factors + c.kernel_spin_ns + c.other_host_ns + c.halted_ns + c.waiting_ns
}
