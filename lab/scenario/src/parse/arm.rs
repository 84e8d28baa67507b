// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[arm]]`: windows, choices of yield targets, and the other settings of an arm.

use crate::parse::keys::{read_all, OfKeys, Read};
use crate::parse::vm::read_lock;
use crate::parse::window::read_window;
use crate::schema::arm::{
    ApleParams, Arm, Asym, Coscheduling, CoschedulingMechanism, Platform, Window, YieldTo,
};
use crate::schema::host::HostScheduler;
use crate::schema::key::Kind;
use crate::schema::keys::arm as keys;
use crate::schema::limits::ARMS_MAX;
use crate::schema::names::{Named, ALONE_ARM, IDEAL_ARM};
use unspin_text::{or, Table, Value};

pub(crate) fn read_arms(
    v: &Value,
    aple: &ApleParams,
    scheduler: Option<HostScheduler>,
) -> Option<(Vec<Arm>, usize)> {
    let all = v.array("[[arm]] tables")?;
    if all.is_empty() {
        v.problem("no arms", "at least one [[arm]]");
        return None;
    }
    if all.len() > ARMS_MAX {
        v.problem(format!("{} arms", all.len()), format!("at most {ARMS_MAX}"));
        return None;
    }
    let mut names: Vec<String> = Vec::new();
    let mut read = Vec::new();
    let mut said: Vec<Option<bool>> = Vec::new();
    for v in &all {
        let Some(t) = v.table("an [[arm]] table") else {
            read.push(None);
            continue;
        };
        if let Some((at, n)) = t.get("name").and_then(|v| Some((v.clone(), v.as_str()?))) {
            if names.iter().any(|m| m == n) {
                at.problem(format!("a second arm named {n:?}"), "each name once");
            }
            names.push(n.to_string());
        }
        let base = t.get("baseline").and_then(|v| Some((v.bool()?, v)));
        if let Some((true, at)) = &base {
            if said.contains(&Some(true)) {
                at.problem("a second baseline", "baseline = true in one arm only");
            }
        }
        said.push(base.map(|(b, _)| b));
        read.push(read_arm(v, &t, aple, scheduler));
    }
    let baseline = match said.iter().position(|b| *b == Some(true)) {
        Some(i) => i,
        None if said.first() == Some(&Some(false)) => {
            v.problem(
                "no arm has baseline = true",
                "baseline = true in one arm, or omit it in the first",
            );
            0
        }
        None => 0,
    };
    Some((read.into_iter().collect::<Option<_>>()?, baseline))
}

fn read_yield_to(v: &Value) -> Option<YieldTo> {
    let mut known: Vec<_> = YieldTo::choices().into_iter().map(|(n, y)| (n, Some(y))).collect();
    let allowed =
        format!("{}; window = \"off\" for no PLE exits at all", keys::YIELD_TO.takes.describe());
    known.push(("none", None));
    let y = v.choice(&known)?;
    if y.is_none() {
        v.problem(
            "KVM's directed yield cannot be switched off: a PLE exit always looks for a vCPU",
            allowed,
        );
    }
    y
}

fn read_name(v: &Value) -> Option<String> {
    let n = keys::NAME.takes.read(v)?;
    if n == ALONE_ARM || n == IDEAL_ARM {
        v.problem(format!("the name {n:?} is reserved for the report"), "another name");
    }
    Some(n)
}

fn read_arm(
    v: &Value,
    t: &Table,
    aple: &ApleParams,
    scheduler: Option<HostScheduler>,
) -> Option<Arm> {
    t.only_of(&keys::ARM);
    let name = t.needed(&keys::NAME).and_then(|v| read_name(&v));
    let window = or(t.at(&keys::WINDOW), Window::Stock, |v| read_window(&v, aple));
    let yield_to = or(t.at(&keys::YIELD_TO), YieldTo::Stock, |v| read_yield_to(&v));
    let lock = or(t.at(&keys::LOCK), None, |v| Some(Some(read_lock(&v)?)));
    let queue_aware = t.read(&keys::QUEUE_AWARE);
    let (name, window, yield_to, lock) = (name?, window?, yield_to?, lock?);
    let queue_aware = queue_aware?;
    if window == Window::Off && (yield_to != YieldTo::Stock || queue_aware) {
        v.problem(
            "without PLE exits there are no yields",
            "yield_to = \"stock\" (or omit it) with window = \"off\"",
        );
    }
    let module_acts =
        matches!(window, Window::Fixed { .. } | Window::Aple(_)) || yield_to != YieldTo::Stock;
    let observe = t.read(&keys::OBSERVE)?;
    if let Some(v) = t.at(&keys::OBSERVE).filter(|_| !observe && module_acts) {
        v.problem(
            "the module counts whenever it sets the window or chooses vCPUs",
            "observe only if window and yield_to are KVM's",
        );
    }
    let coscheduling = t.read(&keys::COSCHEDULING);
    let coscheduling_mechanism = read_mechanism(t, coscheduling);
    let has_slots = coscheduling_mechanism == Some(CoschedulingMechanism::SchedExt)
        || scheduler.is_some_and(|s| s.has_slots());
    let has_none = coscheduling == Some(Coscheduling::None) && !has_slots;
    if let Some(v) = t.at(&keys::TURN_US).filter(|_| has_none) {
        v.problem("without coscheduling no VM has turns", "turn_us with coscheduling");
    }
    read_all!(Arm {
        name: Some(name),
        window: Some(window),
        yield_to: Some(yield_to),
        queue_aware: Some(queue_aware),
        observe: Some(observe),
        lock: Some(lock),
        idle: t.read(&keys::GUEST_IDLE),
        coscheduling: coscheduling,
        coscheduling_mechanism: coscheduling_mechanism,
        turn_us: t.read(&keys::TURN_US),
        asym: or(t.at(&keys::ASYM), Asym::default(), |v| read_asym(&v, scheduler)),
        platform: read_platform(t),
    })
}

/// Only the module can find out which VMs spin.
fn read_mechanism(t: &Table, coscheduling: Option<Coscheduling>) -> Option<CoschedulingMechanism> {
    let mechanism = t.read(&keys::COSCHEDULING_MECHANISM)?;
    let (can, why, fix) = match mechanism {
        CoschedulingMechanism::Park => return Some(mechanism),
        CoschedulingMechanism::SchedExt => (
            &[Coscheduling::None, Coscheduling::Con, Coscheduling::Vcrd][..],
            "Credit by sched_ext only sees spinning that guests report",
            "coscheduling = \"none\", \"con\" or \"vcrd\" with coscheduling_mechanism = \
             \"sched-ext\"",
        ),
        CoschedulingMechanism::Scheduler => (
            &[Coscheduling::None, Coscheduling::Con, Coscheduling::VcrdPle, Coscheduling::VcrdBoth][..],
            "unspin schedule sees spinning that causes PLE exits, and with the module also spinning in user space",
            "coscheduling = \"none\", \"con\", \"vcrd-ple\" or \"vcrd-both\" with coscheduling_mechanism = \
             \"scheduler\"",
        ),
    };
    let cannot = coscheduling.is_some_and(|c| !can.contains(&c));
    if let Some(v) = t.at(&keys::COSCHEDULING_MECHANISM).filter(|_| cannot) {
        v.problem(why, fix);
    }
    Some(mechanism)
}

/// Needs a scheduler whose vCPUs may differ.
fn read_asym(v: &Value, scheduler: Option<HostScheduler>) -> Option<Asym> {
    let t = v.table(keys::ASYM.takes.0)?;
    t.only_of(&keys::ASYM_PARTS);
    let asym = read_all!(Asym {
        time: t.read(&keys::TIME),
        latency: t.read(&keys::LATENCY),
        resolver: t.read(&keys::RESOLVER),
        weight: t.read(&keys::WEIGHT),
        uncorrected: t.read(&keys::UNCORRECTED),
        period_ms: t.read(&keys::ASYM_PERIOD_MS),
    })?;
    if asym != Asym::default() && scheduler.is_some_and(|s| s.is_credit()) {
        v.problem(
            "Credit does not support different weights of vCPUs",
            "scheduler = \"fair\" in [host]",
        );
    }
    Some(asym)
}

fn read_platform(t: &Table) -> Option<Platform> {
    read_all!(Platform {
        physical: t.read(&keys::PHYSICAL),
        apicv: t.read(&keys::APICV),
        halt_poll_us: t.read(&keys::HALT_POLL_US),
        without: t.read(&keys::WITHOUT).map(Option::unwrap_or_default),
    })
}
