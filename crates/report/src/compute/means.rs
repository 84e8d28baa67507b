// SPDX-License-Identifier: MIT OR Apache-2.0
//! Over all profiles: means of the arms, and the share of headroom each has closed.

use crate::stat::{round, spread, Verdict};
use crate::summary::{Headroom, Mean, Place, Row};
use std::collections::BTreeSet;
use unspin_scenario::IDEAL_ARM;

/// Headroom (of ideal) from which a profile counts in the share closed.
const HEADROOM_MIN: f64 = 0.05;

/// The places of the rows over all VMs, and the rows of each.
fn by_place(rows: &[Row]) -> Vec<(Place, Vec<&Row>)> {
    let mut out: Vec<(Place, Vec<&Row>)> = Vec::new();
    for r in rows.iter().filter(|r| r.key.is_whole()) {
        let key = r.key.place();
        match out.iter_mut().find(|(k, _)| *k == key) {
            Some((_, v)) => v.push(r),
            None => out.push((key, vec![r])),
        }
    }
    out
}

fn arms_of<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut arms: Vec<&str> = Vec::new();
    for r in rows {
        if !arms.contains(&r.key.arm.as_str()) {
            arms.push(&r.key.arm);
        }
    }
    arms
}

pub(crate) fn headroom(rows: &[Row]) -> Vec<Headroom> {
    let mut out = Vec::new();
    for (place, rows) in by_place(rows) {
        let ideal: Vec<(&str, f64)> = rows
            .iter()
            .filter(|r| r.key.arm == IDEAL_ARM)
            .filter_map(|r| Some((r.key.profile.as_str(), r.perf.performance?)))
            .collect();
        if ideal.is_empty() {
            continue;
        }
        for arm in arms_of(&rows) {
            let own: Vec<&&Row> = rows
                .iter()
                .filter(|r| r.key.arm == arm && r.key.baseline != arm && arm != IDEAL_ARM)
                .collect();
            if !own.is_empty() {
                out.push(closed(&place, arm, &own, &ideal));
            }
        }
    }
    out
}

fn closed(place: &Place, arm: &str, own: &[&&Row], ideal: &[(&str, f64)]) -> Headroom {
    let (mut won, mut room, mut of) = (0.0, 0.0, 0.0);
    let (mut profiles, mut not_adapted) = (Vec::new(), Vec::new());
    for (profile, limit) in ideal.iter().filter(|(_, i)| 1.0 - 1.0 / i >= HEADROOM_MIN) {
        let Some(r) = own.iter().find(|r| r.key.profile == *profile) else {
            continue;
        };
        let Some(performance) = r.perf.performance else {
            continue;
        };
        if r.never_moved() {
            not_adapted.push(profile.to_string());
        }
        won += performance - 1.0;
        room += limit - 1.0;
        of += limit;
        profiles.push(profile.to_string());
    }
    let all: f64 = ideal.iter().map(|(_, i)| i).sum();
    let loss = if room > 0.0 { room / of } else { (all - ideal.len() as f64) / all };
    let closed = (room > 0.0).then(|| round(won / room));
    Headroom {
        vms: place.vms,
        cgroup: place.cgroup,
        lock: place.lock.clone(),
        guest_lock: own.iter().find_map(|r| Some(r.linux.as_ref()?.guest.lock)),
        arm: arm.to_string(),
        closed,
        closed_all: closed,
        stock_loss: Some(round(loss)),
        profiles,
        not_adapted,
    }
}

pub(crate) fn means(rows: &[Row]) -> Vec<Mean> {
    let mut out = Vec::new();
    for (place, rows) in by_place(rows) {
        for arm in arms_of(&rows) {
            let own: Vec<&Row> = rows
                .iter()
                .copied()
                .filter(|r| {
                    r.key.arm == arm && r.key.spin_intensive && r.perf.performance.is_some()
                })
                .collect();
            if !own.is_empty() {
                out.push(mean(&place, arm, &own));
            }
        }
    }
    out
}

fn mean(place: &Place, arm: &str, own: &[&Row]) -> Mean {
    let average = |x: Vec<f64>| (!x.is_empty()).then(|| x.iter().sum::<f64>() / x.len() as f64);
    let repeats: BTreeSet<u32> = own.iter().flat_map(|r| r.perf.ratios.keys().copied()).collect();
    // Only repeats that every profile has: others would compare different sets.
    let each: Vec<f64> = repeats
        .iter()
        .filter_map(|n| {
            own.iter().map(|r| r.perf.ratios.get(n).copied()).collect::<Option<Vec<_>>>()
        })
        .filter_map(average)
        .collect();
    let s = spread(&each);
    let is_baseline = own.first().is_some_and(|r| r.key.baseline == arm);
    let is_measured = arm != IDEAL_ARM && !is_baseline;
    let still = own.iter().filter(|r| r.never_moved());
    let performance = average(own.iter().filter_map(|r| r.perf.performance).collect()).map(round);
    let waste: Option<Vec<f64>> = own.iter().map(|r| r.inefficiency()).collect();
    let inefficiency = waste.and_then(average).map(round);
    Mean {
        vms: place.vms,
        cgroup: place.cgroup,
        lock: place.lock.clone(),
        arm: arm.to_string(),
        performance,
        performance_low: s.map(|s| round(s.low)),
        performance_high: s.map(|s| round(s.high)),
        verdict: s.filter(|_| is_measured).map(|s| Verdict::of(&s).as_str()),
        inefficiency,
        performance_all: performance,
        inefficiency_all: inefficiency,
        profiles: own.iter().map(|r| r.key.profile.clone()).collect(),
        not_adapted: still.map(|r| r.key.profile.clone()).collect(),
    }
}
