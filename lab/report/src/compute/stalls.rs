// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long waits by the state of the lock meanwhile (VEE 2013, section 3 and table 1): held, or free
//! because the next in line does not run.

use crate::stat::round;
use crate::summary::{StallCount, StallRow};
use unspin_scenario::result::RunResult;

/// The rows of the runs in which stalls were counted.
pub(crate) fn stalls(runs: &[&RunResult]) -> Vec<StallRow> {
    let mut rows: Vec<StallRow> = Vec::new();
    for r in runs.iter().filter(|r| r.vm.iter().any(|v| v.stalls.is_some())) {
        let (lock, arm) = (r.run.first().lock.name(), &r.run.arm.name);
        let same = |s: &StallRow| {
            (&s.profile, s.vms, &*s.lock, &s.arm) == (&r.run.profile, r.run.vm_count(), lock, arm)
        };
        let at = match rows.iter().position(same) {
            Some(at) => at,
            None => {
                rows.push(StallRow {
                    profile: r.run.profile.clone(),
                    vms: r.run.vm_count(),
                    lock: lock.to_string(),
                    arm: arm.clone(),
                    acquisitions: 0,
                    waits: Vec::new(),
                });
                rows.len() - 1
            }
        };
        add(&mut rows[at], r);
    }
    for w in rows.iter_mut().flat_map(|s| &mut s.waits) {
        let all = w.held + w.free;
        w.free_share = (all > 0).then(|| round(w.free as f64 / all as f64));
    }
    rows
}

fn add(row: &mut StallRow, r: &RunResult) {
    for v in &r.vm {
        row.acquisitions += v.acquisitions.iter().sum::<u64>();
        let Some(s) = &v.stalls else { continue };
        for (b, (free, held)) in s.free.iter().zip(&s.held).enumerate().take(63) {
            if row.waits.len() == b {
                row.waits.push(StallCount { turns: 1 << b, held: 0, free: 0, free_share: None });
            }
            row.waits[b].free += free;
            row.waits[b].held += held;
        }
    }
}
