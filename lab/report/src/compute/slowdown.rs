// SPDX-License-Identifier: MIT OR Apache-2.0
//! A VM's slowdown, split among the five factors of virtualization's cost (NJIT 2018, chapter 2):
//! by accounting, and by the throughput regained without each (`unspin-lab bench --attribute`).

use crate::stat::round;
use crate::summary::{CostNs, FactorShare, Row, SlowdownRow};
use std::collections::BTreeSet;
use unspin_diagnosis::{dominant_of, Cause};
use unspin_scenario::plan::{Factor, PHYSICAL_ARM};
use unspin_scenario::result::RunResult;

/// Names of the arms that `--attribute` added to those of the scenario.
pub(crate) fn arms_of_attribution(runs: &[&RunResult]) -> BTreeSet<String> {
    let is_check = |r: &&&RunResult| {
        let arm = &r.run.arm;
        let without = Factor::all().iter().any(|(name, factor)| {
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

/// The rows of the scenario's own arms, and for each the results of the added arms.
pub(crate) fn split(rows: Vec<Row>, checks: &BTreeSet<String>) -> (Vec<Row>, Vec<SlowdownRow>) {
    let (added, own): (Vec<Row>, Vec<Row>) = rows
        .into_iter()
        .partition(|r| checks.contains(&r.key.arm) || r.key.baseline == PHYSICAL_ARM);
    let whole: Vec<&Row> = added.iter().filter(|r| r.key.is_whole()).collect();
    let slowdowns = own
        .iter()
        .filter(|r| r.key.is_whole() && r.key.same_as.is_none())
        .filter_map(|r| slowdown(r, &whole))
        .collect();
    (own, slowdowns)
}

fn slowdown(r: &Row, added: &[&Row]) -> Option<SlowdownRow> {
    let cost = r.cost.filter(|_| !added.is_empty())?;
    let key = &r.key;
    let like = |x: &Row| {
        (&x.key.profile, &x.key.lock, x.key.cgroup) == (&key.profile, &key.lock, key.cgroup)
    };
    let against = |x: &Row| {
        let (x, r) = (x.perf.throughput_per_s?, r.perf.throughput_per_s?);
        (r > 0.0).then(|| round(x / r - 1.0))
    };
    let without = |name: &str| {
        let arm = key.arm.clone() + &suffix(name);
        let found = added.iter().find(|x| x.key.vms == key.vms && x.key.arm == arm && like(x));
        found.and_then(|x| against(x))
    };
    let all = total(&cost).max(1) as f64;
    let share = |ns: u64| round(ns as f64 / all);
    let ns =
        [cost.idle_switch_ns, cost.spin_switch_ns, cost.ipi_ns, cost.user_spin_ns, cost.cache_ns];
    let factors = Factor::all().into_iter().zip(ns);
    let contention = share(cost.waiting_ns);
    let shares = factors.clone().map(|((_, factor), ns)| (factor.cause(), share(ns)));
    Some(SlowdownRow {
        at: key.point(),
        arm: key.arm.clone(),
        slowdown: added
            .iter()
            .find(|x| x.key.arm == PHYSICAL_ARM && like(x))
            .and_then(|x| against(x)),
        factors: factors
            .map(|((factor, _), ns)| FactorShare {
                factor,
                share: share(ns),
                regained: without(factor),
            })
            .collect(),
        kernel_spin: share(cost.kernel_spin_ns),
        other_host: share(cost.other_host_ns),
        contention,
        dominant: dominant_of(shares.chain([(Cause::Contention, contention)])).map(Cause::name),
    })
}

fn total(c: &CostNs) -> u64 {
    let factors = c.idle_switch_ns + c.spin_switch_ns + c.ipi_ns + c.user_spin_ns + c.cache_ns;
    c.work_ns + factors + c.kernel_spin_ns + c.other_host_ns + c.halted_ns + c.waiting_ns
}
