// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures over all profiles: means of the arms, and the share of headroom that each closes.

use crate::stat::{round, spread, Verdict};
use crate::summary::{Headroom, Mean, Place, Row};
use std::collections::BTreeSet;
use unspin_scenario::IDEAL_ARM;
use unspin_text::names::distinct;

/// Least headroom (as a share of ideal) with which a profile counts in the share closed.
const HEADROOM_MIN: f64 = 0.05;
/// If pause-loop exits take a smaller share of CPU time from a program of a Linux guest, a policy
/// for these exits has nothing to gain.
const SEEN_MIN: f64 = 0.001;

/// The ideal of a profile at a point.
struct Limit<'a> {
    profile: &'a str,
    ideal: f64,
    /// Whether its loss is not due to pause-loop exits.
    is_unseen: bool,
}

impl Limit<'_> {
    fn has_headroom(&self) -> bool {
        1.0 - 1.0 / self.ideal >= HEADROOM_MIN
    }
}

/// The points of the rows over all VMs, and the rows of each.
fn by_place(rows: &[Row]) -> Vec<(Place, Vec<&Row>)> {
    let whole = || rows.iter().filter(|r| r.key.is_whole());
    let places = distinct(whole().map(|r| r.key.place()));
    let with_rows = |place: Place| {
        let rows = whole().filter(|r| r.key.place() == place).collect();
        (place, rows)
    };
    places.into_iter().map(with_rows).collect()
}

fn arms_of<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    distinct(rows.iter().map(|r| r.key.arm.as_str()))
}

pub(crate) fn headroom(rows: &[Row]) -> Vec<Headroom> {
    let mut out = Vec::new();
    for (place, rows) in by_place(rows) {
        let limits = limits(&rows);
        if limits.is_empty() {
            continue;
        }
        for arm in arms_of(&rows) {
            let own: Vec<&&Row> = rows
                .iter()
                .filter(|r| r.key.arm == arm && r.key.baseline != arm && arm != IDEAL_ARM)
                .collect();
            if !own.is_empty() {
                out.push(closed(&place, arm, &own, &limits));
            }
        }
    }
    out
}

fn limits<'a>(rows: &[&'a Row]) -> Vec<Limit<'a>> {
    let limit = |r: &&'a Row| {
        let (profile, ideal) = (r.key.profile.as_str(), r.perf.performance?);
        let base = rows.iter().find(|b| b.key.profile == profile && b.key.arm == r.key.baseline);
        Some(Limit { profile, ideal, is_unseen: base.is_some_and(|b| is_unseen(b)) })
    };
    rows.iter().filter(|r| r.key.arm == IDEAL_ARM).filter_map(limit).collect()
}

/// Whether pause-loop exits took hardly any of a Linux guest's CPU time; false if they were not
/// counted.
fn is_unseen(base: &Row) -> bool {
    base.guest.is_some() && base.inefficiency.is_some_and(|lost| lost < SEEN_MIN)
}

fn closed(place: &Place, arm: &str, own: &[&&Row], limits: &[Limit]) -> Headroom {
    let (mut won, mut room, mut of) = (0.0, 0.0, 0.0);
    let (mut profiles, mut unseen, mut not_adapted) = (Vec::new(), Vec::new(), Vec::new());
    for limit in limits.iter().filter(|limit| limit.has_headroom()) {
        let Some(r) = own.iter().find(|r| r.key.profile == limit.profile) else {
            continue;
        };
        let Some(performance) = r.perf.performance else {
            continue;
        };
        if limit.is_unseen {
            unseen.push(limit.profile.to_string());
            continue;
        }
        if r.never_moved() {
            not_adapted.push(limit.profile.to_string());
        }
        won += performance - 1.0;
        room += limit.ideal - 1.0;
        of += limit.ideal;
        profiles.push(limit.profile.to_string());
    }
    let without_room = || {
        let seen = limits.iter().filter(|limit| !(limit.is_unseen && limit.has_headroom()));
        let ideals: Vec<f64> = seen.map(|limit| limit.ideal).collect();
        let all: f64 = ideals.iter().sum();
        (!ideals.is_empty()).then(|| (all - ideals.len() as f64) / all)
    };
    let loss = if room > 0.0 { Some(room / of) } else { without_room() };
    let closed = (room > 0.0).then(|| round(won / room));
    Headroom {
        place: place.clone(),
        guest_lock: own.iter().find_map(|r| Some(r.guest.as_ref()?.lock)),
        arm: arm.to_string(),
        closed,
        closed_all: closed,
        stock_loss: loss.map(round),
        profiles,
        unseen,
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
    // Use only repeats that every profile has; others would compare different sets.
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
    let waste: Option<Vec<f64>> = own.iter().map(|r| r.inefficiency).collect();
    let inefficiency = waste.and_then(average).map(round);
    Mean {
        place: place.clone(),
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
