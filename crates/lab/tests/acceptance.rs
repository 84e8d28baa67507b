// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a host must keep while VMs have turns, on the emulated computer that is measured on: scenarios/
//! gangs-quota.toml and gangs-escape.toml, each arm once.

mod common;

use common::plans::{boot, lab};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use unspin_scenario::plan::Plan;
use unspin_scenario::result::RunResult;
use unspin_scenario::{expand, parse_profile, parse_scenario, Selection, Workloads};

/// Of a scenario's window: what it shows does not take longer.
const WINDOW_MS: u64 = 1000;
/// What a VM under a quota may have more, and the host be idle longer than under stock KVM, of the host.
const QUOTA_SLACK: f64 = 0.02;
/// What the other VM may lose of what stock KVM gives it.
const OTHER_KEEPS: f64 = 0.98;
/// What a VM must keep of its weight's share beside one that leaves its CPUs all the time.
const WEIGHT_KEEPS: f64 = 0.95;

/// One emulator at a time.
static COMPUTER: Mutex<()> = Mutex::new(());

#[test]
fn a_quota_leaves_the_rest_of_the_host_to_the_other() {
    let _alone = COMPUTER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((lab, kernel)) = lab() else { return };
    let results = boot(&lab, &kernel, &plan("gangs-quota"), "acceptance-quota");
    let mut wrong = Vec::new();
    for r in &results {
        let is_stock = |s: &&RunResult| s.run.profile == r.run.profile && s.run.arm.name == "stock";
        let stock = results.iter().find(is_stock).expect("stock KVM's");
        let idle = |r: &RunResult| r.host_idle_share.expect("/proc/stat");
        let (capped, quota) = (0..r.run.vms)
            .find_map(|vm| Some((vm, f64::from(r.run.quota_ppm_of(vm)?) / 1e6)))
            .expect("a VM with a quota");
        let other = 1 - capped;
        let [its, others, before] =
            [share(r, capped), share(r, other), share(stock, other)].map(|x| x * 100.0);
        common::say(&format!(
            "{} {}: {its:.1} % of {:.0} %, the other {others:.1} %, idle {:.1} %",
            r.run.profile,
            r.run.arm.name,
            quota * 100.0,
            idle(r) * 100.0
        ));
        let is_met = share(r, capped) <= quota + QUOTA_SLACK
            && share(r, other) >= OTHER_KEEPS * share(stock, other)
            && idle(r) <= idle(stock) + QUOTA_SLACK;
        if !is_met {
            wrong.push(format!(
                "{} {}: {its:.1} % of {:.0} %; the other {others:.1} %, under stock {before:.1} %; idle {:.1} %, under stock {:.1} %",
                r.run.profile,
                r.run.arm.name,
                quota * 100.0,
                idle(r) * 100.0,
                idle(stock) * 100.0
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn nobody_takes_time_from_others_by_leaving_all_the_time() {
    let _alone = COMPUTER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((lab, kernel)) = lab() else { return };
    let results = boot(&lab, &kernel, &plan("gangs-escape"), "acceptance-escape");
    let mut wrong = Vec::new();
    for r in &results {
        let due = WEIGHT_KEEPS / f64::from(r.run.vms);
        for vm in 0..r.run.vms {
            let group = &r.run.each[vm as usize].group;
            let line = format!("{} {group}: {:.1} %", r.run.arm.name, 100.0 * share(r, vm));
            common::say(&line);
            if group != "exits" && share(r, vm) < due {
                wrong.push(line);
            }
        }
    }
    assert!(wrong.is_empty(), "less than {WEIGHT_KEEPS} of a third:\n{}", wrong.join("\n"));
}

/// CPU time of a VM, of that of the host.
fn share(r: &RunResult, vm: u32) -> f64 {
    let cpu_ns: u64 = r.vm[vm as usize].cpu_ns.iter().sum();
    cpu_ns as f64 / (4.0 * r.window_ns as f64)
}

/// A scenario of the repository, once.
fn plan(name: &str) -> Plan {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: String| {
        let text = std::fs::read_to_string(root.join(&path));
        text.unwrap_or_else(|e| panic!("{path}: {e}"))
    };
    let text = read(format!("scenarios/{name}.toml"));
    let mut scenario = parse_scenario(name, name, &text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scenario.host.pcpus, 4);
    scenario.repeats = 1;
    let profile = |name: String| {
        let text = read(format!("profiles/{name}.toml"));
        (name.clone(), (parse_profile(&name, &name, &text).expect("a profile"), text))
    };
    let profiles: BTreeMap<_, _> = scenario.profile_names().into_iter().map(profile).collect();
    let workloads = Workloads::from(profiles);
    let mut plan = expand(&scenario, &text, &workloads, &Selection::default()).expect("the plan");
    plan.runs.iter_mut().for_each(|run| run.window_ms = WINDOW_MS);
    plan
}
