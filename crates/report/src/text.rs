// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables for a terminal.

use crate::summary::{Place, Row, Summary};
use crate::Document;
use std::fmt::Write;
use tabled::builder::Builder;
use tabled::settings::object::{Columns, Object, Rows};
use tabled::settings::{Alignment, Style};
use unspin_scenario::plan::CgroupLayout;
use unspin_scenario::IDEAL_ARM;

/// Every document as tables.
pub fn text(docs: &[Document]) -> String {
    let mut out = String::new();
    for d in docs {
        document(&mut out, &d.summary);
    }
    out
}

fn document(out: &mut String, s: &Summary) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{} ({})", s.title, s.scenario);
    let _ = writeln!(out, "{}", origin(s));
    for place in &places(s) {
        let rows: Vec<&Row> =
            s.arms.iter().filter(|r| r.vm_index.is_none() && r.place() == *place).collect();
        let _ = writeln!(out, "\n{}", heading(s, place));
        out.push_str(&grid("performance", &rows, s, place, performance));
        let rows: Vec<&Row> = rows.into_iter().filter(|r| r.arm != IDEAL_ARM).collect();
        if rows.iter().any(|r| r.inefficiency.is_some()) {
            out.push_str(&grid("inefficiency", &rows, s, place, |r| {
                r.inefficiency.map_or("-".to_string(), |x| format!("{:.1} %", x * 100.0))
            }));
            out.push_str(&grid("cycles a PLE exit", &rows, s, place, |r| {
                r.exit_handling_cycles.map_or("-".to_string(), |x| x.to_string())
            }));
        }
        if rows.iter().any(|r| r.time.is_some()) {
            out.push_str(&grid("vCPU time, %", &rows, s, place, time));
        }
    }
    out.push_str(&stalls(s));
    out.push_str(&slowdowns(s));
    out.push_str(&headroom(s));
    if s.arms.iter().any(|r| r.time.is_some()) {
        let _ = writeln!(
            out,
            "vCPU time: useful + spinning for a running + for a preempted vCPU + switches and exits \
             + halted + waiting for a pCPU"
        );
    }
    let _ = writeln!(
        out,
        "performance: throughput ÷ {}'s, median over seeds, bigger is better; ~ the spread over \
         seeds does not let one tell; ! not adapted (under 10 rounds a VM), in no mean and \
         share but those marked so too",
        baseline(s)
    );
    for n in &s.notices {
        let _ = writeln!(out, "note: {n}");
    }
    out.push('\n');
}

fn baseline(s: &Summary) -> &str {
    s.arms.first().map_or("the baseline", |r| r.baseline.as_str())
}

/// Where the figures are from, in one line.
pub(crate) fn origin(s: &Summary) -> String {
    let p = &s.provenance;
    let mut line = format!("machine {} · kernel {}", s.machine, s.kernel);
    line += &match &p.module {
        Some(m) => format!(" · module {m}"),
        None => " · no module".to_string(),
    };
    let seeds = if p.seeds.len() == 1 { "1 seed" } else { &format!("{} seeds", p.seeds.len()) };
    line += &format!(" · {} pCPUs · {} runs, {seeds}", p.pcpus, p.runs);
    if !p.epoch_ple_exits.is_empty() {
        let epochs: Vec<String> = p.epoch_ple_exits.iter().map(u32::to_string).collect();
        line += &format!(" · epoch {} PLE exits", epochs.join(" and "));
    }
    if !p.epoch_min_us.is_empty() {
        let least: Vec<String> =
            p.epoch_min_us.iter().map(|&us| format!("{}", f64::from(us) / 1000.0)).collect();
        line += &format!(", at least {} ms", least.join(" and "));
    }
    if !p.complete {
        line += " · INCOMPLETE";
    }
    line
}

fn heading(s: &Summary, place: &Place) -> String {
    let layout = match place.cgroup {
        CgroupLayout::Flat => "no cgroups",
        CgroupLayout::Vm => "one cgroup a VM",
        CgroupLayout::Vcpu => "one cgroup a vCPU",
    };
    let vms = place.vms;
    let plural = if vms == 1 { "" } else { "s" };
    let lock = if place.lock.is_empty() { String::new() } else { format!(", lock {}", place.lock) };
    format!("{vms} VM{plural}, {layout}{lock} ({}, {})", s.machine, s.kernel)
}

pub(crate) fn places(s: &Summary) -> Vec<Place> {
    let mut places = Vec::new();
    for place in s.arms.iter().map(Row::place) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut out = Vec::new();
    for x in all {
        if !out.contains(&x) {
            out.push(x);
        }
    }
    out
}

/// Arms in the order of the table; ideal last.
pub(crate) fn arm_order<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut arms = distinct(rows.iter().map(|r| r.arm.as_str()));
    arms.sort_by_key(|a| *a == IDEAL_ARM);
    arms
}

pub(crate) fn profile_order<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    distinct(rows.iter().map(|r| r.profile.as_str()))
}

fn time(r: &Row) -> String {
    let Some(t) = r.time else {
        return "-".to_string();
    };
    let host = t.switch + t.exit;
    let parts =
        [t.useful, t.spin_holder_running, t.spin_holder_preempted, host, t.halted, t.waiting];
    parts.map(|x| format!("{:.0}", 100.0 * x)).join("+")
}

fn performance(r: &Row) -> String {
    let Some(p) = r.performance else {
        return "-".to_string();
    };
    let mark = match (r.adapted, r.verdict) {
        (Some(false), _) => " !",
        (_, Some("cannot tell")) => " ~",
        _ => "",
    };
    let of = r.same_as.as_ref().map(|a| format!(" ({a})")).unwrap_or_default();
    format!("{p:.2}{mark}{of}")
}

fn grid(what: &str, rows: &[&Row], s: &Summary, place: &Place, cell: fn(&Row) -> String) -> String {
    let (arms, profiles) = (arm_order(rows), profile_order(rows));
    let mut b = Builder::default();
    b.push_record(std::iter::once(what).chain(arms.iter().copied()));
    for p in &profiles {
        let cells = arms.iter().map(|a| {
            let r = rows.iter().find(|r| r.arm == *a && r.profile == *p);
            r.map_or("-".to_string(), |r| cell(r))
        });
        b.push_record(std::iter::once(p.to_string()).chain(cells));
    }
    let means: Vec<_> = s.means.iter().filter(|m| m.place() == *place).collect();
    let over = rows.iter().filter(|r| r.spin_intensive).map(|r| r.profile.as_str());
    let counted = distinct(over).len();
    if counted > 1 && matches!(what, "performance" | "inefficiency") {
        let cells = arms.iter().map(|a| {
            let Some(m) = means.iter().find(|m| m.arm == *a) else {
                return "-".to_string();
            };
            let of = if m.profiles.len() == counted {
                String::new()
            } else {
                format!(" (of {})", m.profiles.len())
            };
            match what {
                "performance" => m
                    .performance
                    .map(|p| {
                        let mark = if m.verdict == Some("cannot tell") { " ~" } else { "" };
                        format!("{p:.2}{mark}{of}")
                    })
                    .or(m.performance_all.map(|p| format!("{p:.2} !"))),
                "inefficiency" => m
                    .inefficiency
                    .map(|x| format!("{:.1} %{of}", x * 100.0))
                    .or(m.inefficiency_all.map(|x| format!("{:.1} % !", x * 100.0))),
                _ => None,
            }
            .unwrap_or("-".to_string())
        });
        b.push_record(std::iter::once("mean of spinning".to_string()).chain(cells));
    }
    let mut t = b.build();
    t.with(Style::sharp()).modify(Columns::new(1..).not(Rows::first()), Alignment::right());
    format!("{t}\n")
}

/// Turns of waits worth a column.
const STALL_TURNS: [u64; 6] = [16, 64, 256, 1024, 4096, 16384];

fn stalls(s: &Summary) -> String {
    if s.stalls.is_empty() {
        return String::new();
    }
    let mut b = Builder::default();
    let head = ["profile", "VMs", "lock", "arm", "acquisitions"].map(str::to_string);
    b.push_record(head.into_iter().chain(STALL_TURNS.map(|t| format!("{t} turns"))));
    for r in &s.stalls {
        let cells = STALL_TURNS.map(|turns| {
            let w = r.waits.iter().find(|w| w.turns == turns);
            w.map_or("-".to_string(), |w| {
                format!("{} ({})", w.held + w.free, percent(w.free_share))
            })
        });
        let vms = r.vms.to_string();
        let first =
            [r.profile.clone(), vms, r.lock.clone(), r.arm.clone(), r.acquisitions.to_string()];
        b.push_record(first.into_iter().chain(cells));
    }
    let mut t = b.build();
    t.with(Style::sharp());
    format!(
        "\nwaits that came to so many turns of their loop, and in how many the lock was free then \
         ({}, {})\n{t}\n",
        s.machine, s.kernel
    )
}

fn slowdowns(s: &Summary) -> String {
    if s.slowdowns.is_empty() {
        return String::new();
    }
    let mut b = Builder::default();
    b.push_record([
        "profile",
        "VMs",
        "cgroups",
        "arm",
        "slowdown",
        "idle switches",
        "spin switches",
        "interrupts",
        "user spinning",
        "caches",
        "kernel spinning",
        "host",
    ]);
    for r in &s.slowdowns {
        let shares = r.factors.iter().map(|f| {
            let regained = f.regained.map_or("off".into(), |x| format!("{:+.1}", 100.0 * x));
            format!("{:.1} ({regained})", 100.0 * f.share)
        });
        let rest = [r.kernel_spin, r.other_host].map(|x| format!("{:.1}", 100.0 * x));
        let first = [
            r.profile.clone(),
            r.vms.to_string(),
            cgroups_and_lock(&r.cgroup, &r.lock),
            r.arm.clone(),
            percent(r.slowdown),
        ];
        b.push_record(first.into_iter().chain(shares).chain(rest));
    }
    let mut t = b.build();
    t.with(Style::sharp()).modify(Columns::new(4..).not(Rows::first()), Alignment::right());
    format!(
        "\nslowdown against the program on the machine itself, and its factors: % of vCPU time (throughput \
         regained without it, %) ({}, {})\n{t}\n",
        s.machine, s.kernel
    )
}

fn headroom(s: &Summary) -> String {
    if s.headroom.is_empty() {
        return String::new();
    }
    let mut b = Builder::default();
    let loses = format!("{} loses", baseline(s));
    b.push_record(["VMs", "cgroups", "arm", &loses, "share closed", "profiles with headroom"]);
    for h in &s.headroom {
        let mut names = if h.profiles.is_empty() { "none".into() } else { h.profiles.join(" ") };
        if !h.not_adapted.is_empty() {
            names += &format!(" (not adapted: {})", h.not_adapted.join(" "));
        }
        b.push_record([
            h.vms.to_string(),
            cgroups_and_lock(&h.cgroup, &h.lock),
            h.arm.clone(),
            percent(h.stock_loss),
            match (h.closed, h.closed_all) {
                (None, Some(all)) => format!("{} !", percent(Some(all))),
                (closed, _) => percent(closed),
            },
            names,
        ]);
    }
    let mut t = b.build();
    t.with(Style::sharp());
    format!("\nheadroom to ideal ({}, {})\n{t}\n", s.machine, s.kernel)
}

fn cgroups_and_lock(cgroup: &CgroupLayout, lock: &str) -> String {
    let cgroup = format!("{cgroup:?}").to_lowercase();
    if lock.is_empty() {
        cgroup
    } else {
        format!("{cgroup}, {lock}")
    }
}

pub(crate) fn percent(x: Option<f64>) -> String {
    x.map_or("-".to_string(), |x| format!("{:.0} %", x * 100.0))
}
