// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[arm]]`: windows, choices of whom to yield to, and what else an arm changes.

use crate::expand::{ALONE_ARM, IDEAL_ARM};
use crate::plan::{
    ApleParams, Arm, Asym, Coscheduling, Factor, HostScheduler, Platform, Window, YieldTo,
};
use crate::reader::{list, or, quoted, read_name, Table, Value};
use crate::scenario::{WINDOW_MAX_CYCLES, WINDOW_MIN_CYCLES};
use crate::vm::read_lock;
use unspin_uapi::Number;

pub(crate) fn read_epoch(v: Value) -> Option<u32> {
    v.u32(Number::EPOCH.range(), " PLE exits")
}

pub(crate) fn read_epoch_min(v: Value) -> Option<u32> {
    v.u32(Number::EPOCH_MIN.range(), " microseconds")
}

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
                "no arm is the baseline",
                "baseline = true in one arm, or left out of the first",
            );
            0
        }
        None => 0,
    };
    Some((read.into_iter().collect::<Option<_>>()?, baseline))
}

fn read_yield_to(v: &Value) -> Option<YieldTo> {
    let mut known: Vec<_> = YieldTo::all().map(|y| (y.name(), Some(y))).collect();
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let allowed = format!("{}; window = \"off\" for no PLE exits at all", quoted(&names));
    known.push(("none", None));
    let y = v.choice(&known)?;
    if y.is_none() {
        v.problem(
            "no machine can do without KVM's directed yield: a PLE exit always looks for a vCPU",
            allowed,
        );
    }
    y
}

fn read_arm(
    v: &Value,
    t: &Table,
    aple: &ApleParams,
    scheduler: Option<HostScheduler>,
) -> Option<Arm> {
    t.only(&[
        "name",
        "window",
        "yield_to",
        "ipi_aware",
        "queue_aware",
        "observe",
        "baseline",
        "lock",
        "coscheduling",
        "asym",
        "physical",
        "apicv",
        "halt_poll_us",
        "without",
    ]);
    let name = t.need("name", "a name").and_then(|v| {
        let n = read_name(&v)?;
        if n == ALONE_ARM || n == IDEAL_ARM {
            v.problem(format!("{n:?} is a name the report uses itself"), "another name");
        }
        Some(n)
    });
    let window = or(t.get("window"), Window::Stock, |v| read_window(&v, aple));
    let yield_to = or(t.get("yield_to"), YieldTo::Stock, |v| read_yield_to(&v));
    let lock = or(t.get("lock"), None, |v| Some(Some(read_lock(&v)?)));
    let ipi_aware = or(t.get("ipi_aware"), false, |v| v.bool())?;
    let queue_aware = or(t.get("queue_aware"), false, |v| v.bool())?;
    let observe = t.get("observe").map(|v| (v.bool(), v));
    let (name, window, yield_to, lock) = (name?, window?, yield_to?, lock?);
    if window == Window::Off && (yield_to != YieldTo::Stock || ipi_aware || queue_aware) {
        v.problem(
            "without PLE exits nothing is ever yielded",
            "yield_to = \"stock\" (or none of it) with window = \"off\"",
        );
    }
    let module_acts =
        matches!(window, Window::Fixed { .. } | Window::Aple(_)) || yield_to != YieldTo::Stock;
    let observe = match observe {
        Some((Some(false), v)) if module_acts => {
            v.problem(
                "the module cannot act without counting",
                "observe only where both are KVM's own",
            );
            true
        }
        Some((b, _)) => b?,
        None => true,
    };
    let (coscheduling, asym) = read_scheduling(t, scheduler)?;
    let platform = read_platform(t)?;
    Some(Arm {
        name,
        window,
        yield_to,
        ipi_aware,
        queue_aware,
        observe,
        lock,
        coscheduling,
        asym,
        platform,
    })
}

const COSCHEDULING: &[(&str, Coscheduling)] = &[
    ("none", Coscheduling::None),
    ("con", Coscheduling::Con),
    ("vcrd", Coscheduling::Vcrd),
    ("vcrd-ple", Coscheduling::VcrdPle),
];

/// What an arm asks of the host's scheduler; each part needs the scheduler it is made for.
fn read_scheduling(t: &Table, scheduler: Option<HostScheduler>) -> Option<(Coscheduling, Asym)> {
    let is_fair = !scheduler.unwrap_or_default().is_credit();
    let coscheduling = or(t.get("coscheduling"), Coscheduling::None, |v| {
        let c = v.choice(COSCHEDULING)?;
        if c != Coscheduling::None && is_fair && scheduler.is_some() {
            v.problem(
                "the fair scheduler runs no vCPUs together",
                "scheduler = \"credit\" or \"credit-capped\" in [host]",
            );
        }
        Some(c)
    });
    let asym = or(t.get("asym"), Asym::default(), |v| {
        let a = v.table("{ time = true, latency = true, resolver = true }")?;
        a.only(&["time", "latency", "resolver", "period_ms"]);
        let on = |key| or(a.get(key), false, |v| v.bool());
        let period_ms = or(a.get("period_ms"), None, |v| Some(Some(v.u32(1..=1000, " ms")?)));
        let (time, latency, resolver) = (on("time")?, on("latency")?, on("resolver")?);
        let asym = Asym { time, latency, resolver, period_ms: period_ms? };
        if asym != Asym::default() && !is_fair {
            v.problem("Credit has no vCPUs of different weight", "scheduler = \"fair\" in [host]");
        }
        Some(asym)
    });
    Some((coscheduling?, asym?))
}

fn read_platform(t: &Table) -> Option<Platform> {
    let names: Vec<&str> = Factor::ALL.iter().map(|(name, _)| *name).collect();
    let names = names.join(", ");
    let physical = or(t.get("physical"), false, |v| v.bool());
    let apicv = or(t.get("apicv"), false, |v| v.bool());
    let halt_poll_us = or(t.get("halt_poll_us"), 0, |v| v.u32(0..=1_000_000, " microseconds"));
    let without =
        or(t.get("without"), Vec::new(), |v| list(&v, &names, |v| v.choice(&Factor::ALL)));
    Some(Platform {
        physical: physical?,
        apicv: apicv?,
        halt_poll_us: halt_poll_us?,
        without: without?,
    })
}

const WINDOW_FORMS: &str =
    "\"stock\", \"off\", { fixed_cycles = N } or { aple = { delta_cycles = N, … } }";

fn read_window(v: &Value, aple: &ApleParams) -> Option<Window> {
    if v.is_str() {
        return v.choice(&[
            ("stock", Window::Stock),
            ("off", Window::Off),
            ("aple", Window::Aple(*aple)),
        ]);
    }
    let t = v.table(WINDOW_FORMS)?;
    t.only(&["fixed_cycles", "aple"]);
    match (t.get("fixed_cycles"), t.get("aple")) {
        (Some(n), None) => Some(Window::Fixed { cycles: read_cycles(&n)? }),
        (None, Some(a)) => read_aple(&a, aple),
        (Some(_), Some(_)) => {
            v.problem("fixed and adapted at once", "one of fixed_cycles and aple");
            None
        }
        (None, None) => {
            if t.keys().is_empty() {
                v.problem("empty", WINDOW_FORMS);
            }
            None
        }
    }
}

fn read_cycles(v: &Value) -> Option<u32> {
    v.u32(WINDOW_MIN_CYCLES..=WINDOW_MAX_CYCLES, " TSC cycles")
}

fn read_aple(v: &Value, d: &ApleParams) -> Option<Window> {
    let t = v.table("{ delta_cycles = N, … }")?;
    t.only(&[
        Number::WINDOW_INIT.file(),
        Number::WINDOW_MIN.file(),
        Number::WINDOW_MAX.file(),
        Number::DELTA.file(),
        Number::DELTA_MAX.file(),
        Number::EPOCH.file(),
        Number::EPOCH_MIN.file(),
    ]);
    let cycles = |key: &str, default| or(t.get(key), default, |v| read_cycles(&v));
    let window_init_cycles = cycles("window_init_cycles", d.window_init_cycles);
    let window_min_cycles = cycles("window_min_cycles", d.window_min_cycles);
    let window_max_cycles = cycles("window_max_cycles", d.window_max_cycles);
    let delta_cycles = or(t.get("delta_cycles"), d.delta_cycles, |v| {
        // Not 0, which the module takes: a window that stays has a name of its own here.
        v.u32(1..=Number::DELTA.most(), " TSC cycles (a window that stays is fixed_cycles)")
    });
    let delta_max = or(t.get("delta_max_cycles"), d.delta_max_cycles, |v| {
        let range = Number::DELTA_MAX.range();
        v.u32(range, " TSC cycles (up to delta_cycles: the step never changes)")
    });
    let epoch = or(t.get("epoch_ple_exits"), d.epoch_ple_exits, read_epoch);
    let epoch_min = or(t.get("epoch_min_us"), d.epoch_min_us, read_epoch_min);
    let window_max_cycles = window_max_cycles?;
    // As the module does: what nobody asked for gives way to a lower bound.
    let settled = |key: &str, asked: Option<u32>, usual: u32| match t.get(key) {
        Some(_) => asked,
        None => Some(usual.min(window_max_cycles)),
    };
    let delta_cycles = settled("delta_cycles", delta_cycles, d.delta_cycles);
    let delta_max_cycles = settled("delta_max_cycles", delta_max, d.delta_max_cycles);
    let p = ApleParams {
        window_init_cycles: window_init_cycles?,
        window_min_cycles: window_min_cycles?,
        window_max_cycles,
        delta_cycles: delta_cycles?,
        delta_max_cycles: delta_max_cycles?,
        epoch_ple_exits: epoch?,
        epoch_min_us: epoch_min?,
    };
    let (least, most) = (p.window_min_cycles, p.window_max_cycles);
    if least > most {
        v.problem(
            format!("window_min_cycles {least} is above window_max_cycles {most}"),
            "window_min_cycles <= window_init_cycles <= window_max_cycles",
        );
    } else {
        if !(least..=most).contains(&p.window_init_cycles) {
            v.problem(
                format!("window_init_cycles {} is out of range", p.window_init_cycles),
                format!("from {least} to {most} (window_min_cycles, window_max_cycles)"),
            );
        }
        for (key, delta) in
            [("delta_cycles", p.delta_cycles), ("delta_max_cycles", p.delta_max_cycles)]
        {
            if delta > most {
                v.problem(
                    format!("{key} {delta} is out of range"),
                    format!("up to {most} (window_max_cycles)"),
                );
            }
        }
    }
    Some(Window::Aple(p))
}
