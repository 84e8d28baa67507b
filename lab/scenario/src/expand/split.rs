// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares of a plan, for several computers.

use crate::plan::{Plan, Run};
use crate::schema::host::CgroupLayout;
use crate::schema::linux::LinuxGuest;

/// Identical Linux guests are booted once, on one computer, for all their runs.
#[derive(PartialEq)]
enum PointKey {
    Bench(String, u32, CgroupLayout, String, bool),
    Linux(String, LinuxGuest),
}

/// Divides a plan among `parts` computers. All arms and repeats of a point stay together, and every
/// computer gets about the same length of virtual time. Empty parts are left out.
pub fn split(plan: &Plan, parts: u32) -> Vec<Plan> {
    let mut points: Vec<(PointKey, u64, Vec<Run>)> = Vec::new();
    for r in &plan.runs {
        let key = match &r.first().linux {
            Some(linux) => PointKey::Linux(r.profile.clone(), linux.guest.clone()),
            None => {
                let (profile, lock) = (r.profile.clone(), r.lock_group.clone());
                PointKey::Bench(profile, r.vm_count(), r.cgroup, lock, r.alone)
            }
        };
        // The time on an emulated computer grows with the number of busy CPUs, not with the VMs on
        // them.
        let cost = r.warmup_ms + r.window_ms + r.stagger_ms;
        match points.iter_mut().find(|(k, _, _)| *k == key) {
            Some((_, c, runs)) => {
                *c += cost;
                runs.push(r.clone());
            }
            None => points.push((key, cost, vec![r.clone()])),
        }
    }
    points.sort_by_key(|(_, c, _)| std::cmp::Reverse(*c));
    let parts = (parts.max(1) as usize).min(points.len().max(1));
    let mut shares: Vec<(u64, Vec<Run>)> = vec![(0, Vec::new()); parts];
    for (_, cost, runs) in points {
        if let Some(least) = shares.iter_mut().min_by_key(|(c, _)| *c) {
            least.0 += cost;
            least.1.extend(runs);
        }
    }
    shares
        .into_iter()
        .map(|(_, mut runs)| {
            runs.sort_by_key(|r| r.id);
            Plan { runs, ..plan.clone() }
        })
        .collect()
}

/// Share `index` (1 to `of`) of a plan, for one of many computers; empty if there are more shares
/// than parts. With `whole_points`, arms and repeats of a point stay together, for machines that
/// compare runs within a boot. Otherwise every `of`-th run.
pub fn shard(plan: &Plan, index: u32, of: u32, whole_points: bool) -> Plan {
    let at = index.saturating_sub(1) as usize;
    let runs = if whole_points {
        split(plan, of).into_iter().nth(at).map(|p| p.runs).unwrap_or_default()
    } else {
        plan.runs.iter().skip(at).step_by(of.max(1) as usize).cloned().collect()
    };
    Plan { runs, ..plan.clone() }
}
