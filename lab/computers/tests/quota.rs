// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a host must keep while VMs have turns and one of them has a quota, on the emulated computer that is
//! measured on: scenarios/gangs-quota.toml, each arm once.

mod common;

use common::once::{plan, share};
use common::plans::{boot, lab};
use unspin_scenario::result::RunResult;

/// What a VM under a quota may have more, and the host be idle longer than under stock KVM, of the host.
const QUOTA_SLACK: f64 = 0.02;
/// The least share of its work under stock KVM that the other VM must keep.
const OTHER_KEEPS: f64 = 0.98;

#[test]
fn a_quota_leaves_the_rest_of_the_host_to_the_other() {
    let Some((lab, kernel)) = lab() else { return };
    let results = boot(&lab, &kernel, &plan("gangs-quota"), "quota");
    let mut wrong = Vec::new();
    for r in &results {
        let is_stock = |s: &&RunResult| s.run.profile == r.run.profile && s.run.arm.name == "stock";
        let stock = results.iter().find(is_stock).expect("stock KVM's");
        let idle = |r: &RunResult| r.host_idle_share.expect("/proc/stat");
        let (capped, quota) = (0..)
            .zip(&r.run.vms)
            .find_map(|(number, vm)| Some((number, f64::from(vm.quota_ppm?) / 1e6)))
            .expect("a VM with a quota");
        let other = 1 - capped;
        let [its, others, before] =
            [share(r, capped), share(r, other), share(stock, other)].map(|x| x * 100.0);
        let line = format!(
            "{} {}: {its:.1} % of {:.0} %; the other {others:.1} %, under stock {before:.1} %; idle {:.1} %, under stock {:.1} %",
            r.run.profile,
            r.run.arm.name,
            quota * 100.0,
            idle(r) * 100.0,
            idle(stock) * 100.0
        );
        common::say(&line);
        let is_met = share(r, capped) <= quota + QUOTA_SLACK
            && share(r, other) >= OTHER_KEEPS * share(stock, other)
            && idle(r) <= idle(stock) + QUOTA_SLACK;
        if !is_met {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
