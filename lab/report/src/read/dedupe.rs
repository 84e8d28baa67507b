// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups records: streams of one document, runs of one point, and repeated runs.

use crate::read::input::Stream;
use crate::show::place::count;
use crate::summary::{Place, Point};
use unspin_scenario::result::RunResult;

pub(crate) fn point_of(r: &RunResult) -> Point {
    let run = &r.run;
    let place = Place { vms: run.vm_count(), cgroup: run.cgroup, lock: run.lock_group.clone() };
    Point { profile: run.profile.clone(), place }
}

/// The streams of each scenario, machine, kernel and module, in order of appearance.
pub(crate) fn by_document(streams: &[Stream]) -> Vec<Vec<&Stream>> {
    let mut groups: Vec<Vec<&Stream>> = Vec::new();
    for s in streams {
        match groups.iter_mut().find(|g| same_document(g[0], s)) {
            Some(g) => g.push(s),
            None => groups.push(vec![s]),
        }
    }
    groups
}

fn same_document(a: &Stream, b: &Stream) -> bool {
    let (a, b) = (&a.begin, &b.begin);
    (&a.scenario, &a.scenario_hash, &a.machine, &a.kernel, &a.module)
        == (&b.scenario, &b.scenario_hash, &b.machine, &b.kernel, &b.module)
}

/// Every run once, without runs in which a VM ended early.
pub(crate) fn distinct_runs<'a>(
    streams: &[&'a Stream],
    notices: &mut Vec<String>,
) -> Vec<&'a RunResult> {
    let mut runs: Vec<&RunResult> = Vec::new();
    let mut differing = 0;
    for r in streams.iter().flat_map(|s| &s.runs) {
        if let Some(e) = r.vm.iter().find_map(|v| v.error.as_ref()) {
            notices.push(format!("{} left out: a VM failed: {e}", name_of(r)));
            continue;
        }
        if r.vm.is_empty() || r.window_ns == 0 {
            notices.push(format!("{} left out: it has no measurement", name_of(r)));
            continue;
        }
        match runs.iter().find(|x| same_run(x, r)) {
            Some(x) if x == &r => {}
            Some(_) => differing += 1,
            None => runs.push(r),
        }
    }
    if differing > 0 {
        notices.push(format!(
            "{differing} runs stand in the results twice with different values; the first counts"
        ));
    }
    runs
}

fn same_run(a: &RunResult, b: &RunResult) -> bool {
    let (a, b) = (&a.run, &b.run);
    (&a.profile, a.cgroup, &a.lock_group) == (&b.profile, b.cgroup, &b.lock_group)
        && (a.repeat, a.seed, a.alone) == (b.repeat, b.seed, b.alone)
        && a.arm == b.arm
        // One workload may run alone in VMs of several kinds.
        && a.vms == b.vms
}

fn name_of(r: &RunResult) -> String {
    format!(
        "run {} ({}, {}, {}, {}, repeat {})",
        r.run.id,
        r.run.profile,
        count(r.run.vm_count(), "VM"),
        r.run.first().lock.name(),
        r.run.arm.name,
        r.run.repeat
    )
}
