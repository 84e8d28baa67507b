// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables for a terminal.

use crate::show::bands;
use crate::show::diagnoses::{head, lines};
use crate::show::place::{
    arm_order, baseline, cgroups_and_lock, count, distinct, origin, percent, places, profile_order,
    rows_at,
};
use crate::show::shares::{cpu_shares, has_turns, refusals, turn_shares};
use crate::show::windows::{adapting, still, window};
use crate::summary::{
    Document, Headroom, Mean, Place, Row, SlowdownRow, Spinner, StallRow, Summary, VcpuTime,
    WakeupRow,
};
use std::fmt::Write;
use unspin_diagnosis::Cause;
use unspin_scenario::plan::CgroupLayout;
use unspin_scenario::{Named, IDEAL_ARM};
use unspin_text::fit::wrap_lines;
use unspin_text::Framed;

/// All documents as tables, in lines of at most `width` cells.
pub fn text(docs: &[Document], width: usize) -> String {
    let mut out = String::new();
    for d in docs {
        document(&mut out, &d.summary, width);
    }
    // Tables have no wider line.
    wrap_lines(&out, width)
}

fn document(out: &mut String, s: &Summary, width: usize) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{} ({})", s.title, s.scenario);
    let _ = writeln!(out, "{}", origin(s));
    for place in &places(s) {
        let _ = writeln!(out, "\n{}", heading(s, place));
        grids(out, s, place, width);
        out.push_str(&worlds(s, place, width));
    }
    for line in bands::made(s) {
        let _ = writeln!(out, "{line}");
    }
    out.push_str(&linux_legend(s));
    out.push_str(&spinners(s, width));
    out.push_str(&stalls(s, width));
    out.push_str(&diagnoses(s, width));
    out.push_str(&wakeups(s, width));
    out.push_str(&slowdowns(s, width));
    out.push_str(&headroom(s, width));
    for (is_shown, legend) in LEGENDS {
        if s.arms.iter().any(is_shown) {
            let _ = writeln!(out, "{legend}");
        }
    }
    let _ = writeln!(
        out,
        "performance: throughput ÷ that of {}, median over seeds, higher is better; ~ not \
         significant, by the spread over seeds",
        baseline(s)
    );
    for n in &s.notices {
        let _ = writeln!(out, "note: {n}");
    }
    out.push('\n');
}

/// Which rows have a figure, and what it means.
type Legend = (fn(&Row) -> bool, &'static str);

const LEGENDS: [Legend; 3] = [
    (
        |r| r.time.is_some(),
        "vCPU time: useful + spinning for a running + for a preempted vCPU + switches and exits \
         + halted + waiting for a pCPU",
    ),
    (
        |r| r.adapted.is_some(),
        "window: TSC cycles at the end, median over VMs and seeds, and the fewest rounds of 3 \
         epochs of APLE in any VM",
    ),
    (
        |r| r.share.is_some_and(|share| share.turn.is_some()),
        "own turns: share of the measuring time in which a VM had its pCPUs to itself; VMs may have \
         turns at the same time",
    ),
];

/// The tables of one point.
fn grids(out: &mut String, s: &Summary, place: &Place, width: usize) {
    let grid =
        |what: &str, rows: &[&Row], cell: Cell, means: Means| grid(what, rows, cell, means, width);
    let rows = rows_at(s, place);
    let means: Vec<&Mean> = s.means.iter().filter(|m| m.place == *place).collect();
    out.push_str(&grid("performance", &rows, &performance, Some((&means, mean_performance))));
    let rows: Vec<&Row> = rows.into_iter().filter(|r| r.key.arm != IDEAL_ARM).collect();
    if rows.iter().any(|r| r.inefficiency.is_some()) {
        out.push_str(&grid(
            "inefficiency",
            &rows,
            &inefficiency,
            Some((&means, mean_inefficiency)),
        ));
        out.push_str(&grid("cycles per PLE exit", &rows, &exit_handling, None));
    }
    let adapting = adapting(&rows);
    if !adapting.is_empty() {
        out.push_str(&grid("window (rounds)", &adapting, &window, None));
    }
    for sentence in still(&rows) {
        let _ = writeln!(out, "{sentence}");
    }
    if rows.iter().any(|r| r.time.is_some()) {
        out.push_str(&grid("vCPU time, %", &rows, &time, None));
    }
    if rows.iter().any(|r| has_turns(s, r)) {
        let cpu = |r: &Row| cpu_shares(s, r);
        out.push_str(&grid("CPU time of each VM, %", &rows, &cpu, None));
        let turn = |r: &Row| turn_shares(s, r);
        out.push_str(&grid("own turns of each VM, %", &rows, &turn, None));
        let idle =
            |r: &Row| r.host_idle_share.map_or("-".to_string(), |x| format!("{:.1}", 100.0 * x));
        out.push_str(&grid("host idle, % of its CPU time", &rows, &idle, None));
    }
    for sentence in refusals(s, place) {
        let _ = writeln!(out, "{sentence}");
    }
    if rows.iter().any(|r| r.hog_cpu_share.is_some()) {
        let share =
            |r: &Row| r.hog_cpu_share.map_or("-".to_string(), |x| format!("{:.1}", 100.0 * x));
        out.push_str(&grid("CPU time of the host's hogs, % of a pCPU each", &rows, &share, None));
    }
    if rows.iter().any(|r| r.response.is_some()) {
        let cell = |x: Option<f64>| x.map_or("-".to_string(), |x| format!("{x:.0}"));
        let times = |r: &Row| {
            r.response.map_or("-".to_string(), |of| {
                [of.mean_us, of.p50_us, of.p99_us, of.p999_us].map(cell).join(", ")
            })
        };
        out.push_str(&grid("response time, µs: mean, p50, p99, p99.9", &rows, &times, None));
    }
    for is_polling_known in [false, true] {
        let of = |r: &&Row| r.vcpu_time.is_some_and(|t| t.polling.is_some() == is_polling_known);
        let rows: Vec<&Row> = rows.iter().copied().filter(of).collect();
        if !rows.is_empty() {
            let what = format!("{}, %", linux_parts(is_polling_known));
            out.push_str(&grid(&what, &rows, &linux_time_cell, None));
        }
    }
}

/// The bands of arms over worlds, and the inputs that decide.
fn worlds(s: &Summary, place: &Place, width: usize) -> String {
    let (title, lines) = ("performance over worlds", bands::lines(s, place));
    let table = titled(title, 2, Some(2), &bands::HEAD, lines, width);
    let sentences = bands::sentences(s, place);
    table + &sentences.iter().map(|line| format!("{line}\n")).collect::<String>()
}

/// Where Linux guests were under the baseline.
fn spinners(s: &Summary, width: usize) -> String {
    let mut rows = Vec::new();
    for r in s.arms.iter().filter(|r| r.key.is_whole() && r.key.arm == r.key.baseline) {
        let Some(guest) = &r.guest else { continue };
        let kinds = [("pause-loop exits", &r.spinners), ("interrupts", &r.interrupted)];
        for (kind, places) in kinds.into_iter().filter(|(_, places)| !places.is_empty()) {
            let place = |p: &Spinner| format!("{} {:.0} %", p.symbol, 100.0 * p.share);
            let places: Vec<String> = places.iter().take(3).map(place).collect();
            let (profile, vms) = (r.key.profile.clone(), r.key.vms.to_string());
            let lock = guest.lock.to_string();
            rows.push(vec![profile, vms, lock, kind.to_string(), places.join(", ")]);
        }
    }
    let title = format!("where vCPUs of Linux guests were, under {}", baseline(s));
    let head = ["profile", "VMs", "guest lock", "seen at", "where"];
    titled(&title, 4, None, &head, rows, width)
}

fn linux_time_cell(r: &Row) -> String {
    let Some(t) = r.vcpu_time else { return "-".to_string() };
    let parts = std::iter::once(t.running).chain(t.polling).chain([t.waiting, t.halted]);
    parts.map(|x| format!("{:.0}", 100.0 * x)).collect::<Vec<_>>().join("+")
}

/// The parts of a cell of such times, in its order.
fn linux_parts(is_polling_known: bool) -> &'static str {
    match is_polling_known {
        false => "running+waiting+halted",
        true => "running+polling+waiting+halted",
    }
}

fn linux_legend(s: &Summary) -> String {
    let mut out = String::new();
    let shown = s.arms.iter().filter(|r| r.key.is_whole());
    let times: Vec<VcpuTime> = shown.filter_map(|r| r.vcpu_time).collect();
    for is_polling_known in [false, true] {
        if times.iter().any(|t| t.polling.is_some() == is_polling_known) {
            let polling = match is_polling_known {
                false => "",
                true => "; polling: KVM keeps the pCPU and waits for a wake-up",
            };
            let _ = writeln!(
                out,
                "{}: shares of the vCPUs' time, by the host's scheduler; waiting: runnable without \
                 a pCPU{polling}",
                linux_parts(is_polling_known)
            );
        }
    }
    out
}

fn heading(s: &Summary, place: &Place) -> String {
    let layout = match place.cgroup {
        CgroupLayout::Flat => "no cgroups",
        CgroupLayout::Vm => "one cgroup per VM",
        CgroupLayout::Vcpu => "one cgroup per vCPU",
        CgroupLayout::Libvirt => "libvirt's cgroups",
    };
    let vms = count(place.vms, "VM");
    let lock = if place.lock.is_empty() { String::new() } else { format!(", lock {}", place.lock) };
    let guest = rows_at(s, place).into_iter().find_map(|r| r.guest.as_ref());
    let guests = guest.map(|guest| format!(" with Linux {}", guest.kernel));
    let guests = guests.unwrap_or_default();
    format!("{vms}{guests}, {layout}{lock} ({}, {})", s.machine, s.kernel)
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
    let Some(p) = r.perf.performance else {
        return "-".to_string();
    };
    let mark = mark_of(r.perf.verdict);
    let of = r.key.same_as.as_ref().map(|a| format!(" ({a})")).unwrap_or_default();
    format!("{p:.2}{mark}{of}")
}

fn inefficiency(r: &Row) -> String {
    r.inefficiency.map_or("-".to_string(), |x| format!("{:.1} %", x * 100.0))
}

fn exit_handling(r: &Row) -> String {
    r.exit_handling_cycles.map_or("-".to_string(), |x| x.to_string())
}

/// The text of an arm's mean over the profiles that spin.
type MeanCell = fn(&Mean) -> Option<String>;
type Means<'a> = Option<(&'a [&'a Mean], MeanCell)>;
/// The text of a row in a cell.
type Cell<'a> = &'a dyn Fn(&Row) -> String;

/// Arms as columns, profiles as rows, and means below if given.
fn grid(what: &str, rows: &[&Row], cell: Cell, means: Means, width: usize) -> String {
    let (arms, profiles) = (arm_order(rows), profile_order(rows));
    let mut records = vec![record(what, arms.iter().map(|a| a.to_string()))];
    for p in &profiles {
        let cells = arms.iter().map(|a| {
            let r = rows.iter().find(|r| r.key.arm == *a && r.key.profile == *p);
            r.map_or("-".to_string(), |r| cell(r))
        });
        records.push(record(p, cells));
    }
    let over = rows.iter().filter(|r| r.key.spin_intensive).map(|r| r.key.profile.as_str());
    if let Some((means, mean)) = means.filter(|_| distinct(over).len() > 1) {
        let cells = arms.iter().map(|a| {
            let m = means.iter().find(|m| m.arm == *a);
            m.and_then(|m| mean(m)).unwrap_or("-".to_string())
        });
        records.push(record("mean of spinning", cells));
    }
    Framed { records, keys: 1, right_from: Some(1), right_titles: false }.text(width)
}

fn record(first: &str, rest: impl Iterator<Item = String>) -> Vec<String> {
    std::iter::once(first.to_string()).chain(rest).collect()
}

/// A table under its title; empty if there are no rows. `keys`: number of leading columns that
/// identify a row. Columns from `right_from` on are right-aligned.
fn titled(
    title: &str,
    keys: usize,
    right_from: Option<usize>,
    head: &[&str],
    rows: Vec<Vec<String>>,
    width: usize,
) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut records = vec![head.iter().map(|h| h.to_string()).collect()];
    records.extend(rows);
    let table = Framed { records, keys, right_from, right_titles: false };
    format!("\n{title}\n{}", table.text(width))
}

fn mean_performance(m: &Mean) -> Option<String> {
    m.performance.map(|p| format!("{p:.2}{}", mark_of(m.verdict)))
}

fn mean_inefficiency(m: &Mean) -> Option<String> {
    m.inefficiency.map(|x| format!("{:.1} %", x * 100.0))
}

/// The mark of a ratio that does not differ significantly from 1.
fn mark_of(verdict: Option<&str>) -> &'static str {
    match verdict {
        Some("cannot tell") => " ~",
        _ => "",
    }
}

/// Numbers of iterations that have a column.
const STALL_TURNS: [u64; 6] = [16, 64, 256, 1024, 4096, 16384];

fn stalls(s: &Summary, width: usize) -> String {
    let turns = STALL_TURNS.map(|t| format!("{t} turns"));
    let mut head = vec!["profile", "VMs", "lock", "arm", "acquisitions"];
    head.extend(turns.iter().map(String::as_str));
    let row = |r: &StallRow| {
        let cells = STALL_TURNS.map(|turns| {
            let w = r.waits.iter().find(|w| w.turns == turns);
            w.map_or("-".to_string(), |w| {
                format!("{} ({})", w.held + w.free, percent(w.free_share))
            })
        });
        let vms = r.vms.to_string();
        let first =
            [r.profile.clone(), vms, r.lock.clone(), r.arm.clone(), r.acquisitions.to_string()];
        first.into_iter().chain(cells).collect()
    };
    let title = format!(
        "waits that reached so many turns of their spin loop, and in how many of them the lock was \
         free ({}, {})",
        s.machine, s.kernel
    );
    titled(&title, 4, None, &head, s.stalls.iter().map(row).collect(), width)
}

fn diagnoses(s: &Summary, width: usize) -> String {
    let judged = || s.arms.iter().filter_map(|row| row.diagnosis.as_ref()?.is_right());
    let right = match judged().count() {
        0 => String::new(),
        all => format!("; right: {} of {all} VMs", judged().filter(|right| *right).count()),
    };
    let title = format!(
        "time that VMs lose, share of their vCPUs' time; ? is unknown{right} ({}, {})",
        s.machine, s.kernel
    );
    titled(&title, 5, None, &head(), lines(s), width)
}

fn wakeups(s: &Summary, width: usize) -> String {
    let head = [
        "profile",
        "VMs",
        "cgroups",
        "arm",
        "wake-ups",
        "median",
        "p99",
        "largest",
        "p99 ÷ baseline",
    ];
    let us = |us: f64| format!("{us:.0} µs");
    let row = |r: &WakeupRow| {
        vec![
            r.at.profile.clone(),
            r.at.place.vms.to_string(),
            r.at.place.cgroup.called().to_string(),
            r.arm.clone(),
            r.count.to_string(),
            us(r.p50_us),
            us(r.p99_us),
            us(r.max_us),
            r.p99_against_baseline.map_or("-".to_string(), |ratio| format!("{ratio:.2}")),
        ]
    };
    let title = format!("wake-up latency of host tasks ({}, {})", s.machine, s.kernel);
    titled(&title, 4, None, &head, s.wakeups.iter().map(row).collect(), width)
}

fn slowdowns(s: &Summary, width: usize) -> String {
    let head = [
        "profile",
        "VMs",
        "cgroups",
        "arm",
        "slowdown",
        Cause::IdleSwitch.name(),
        Cause::SpinSwitch.name(),
        Cause::Ipi.name(),
        Cause::UserSpin.name(),
        Cause::Cache.name(),
        "kernel spinning",
        "other host",
        Cause::Contention.name(),
        "dominant",
    ];
    let row = |r: &SlowdownRow| {
        let shares = r.factors.iter().map(|f| {
            let regained = f.regained.map_or("off".into(), |x| format!("{:+.1}", 100.0 * x));
            format!("{:.1} ({regained})", 100.0 * f.share)
        });
        let dominant = r.dominant.unwrap_or("nothing").to_string();
        let rest = [r.kernel_spin, r.other_host, r.contention].map(|x| format!("{:.1}", 100.0 * x));
        let first = [
            r.at.profile.clone(),
            r.at.place.vms.to_string(),
            cgroups_and_lock(&r.at.place),
            r.arm.clone(),
            percent(r.slowdown),
        ];
        first.into_iter().chain(shares).chain(rest).chain([dominant]).collect()
    };
    let title = format!(
        "slowdown against the program on the machine itself, and its factors: % of vCPU time (throughput \
         regained without it, %) ({}, {})",
        s.machine, s.kernel
    );
    let rows: Vec<Vec<String>> = s.slowdowns.iter().map(row).collect();
    let legend = match rows.is_empty() {
        true => "",
        false => {
            "kernel spinning: in the guest's kernel, seen by no exit; other host: exits and switches that \
             are no factor's; dominant: the cause with the largest share, from 5 % on\n"
        }
    };
    titled(&title, 4, Some(4), &head, rows, width) + legend
}

fn headroom(s: &Summary, width: usize) -> String {
    let loses = format!("{} loses", baseline(s));
    let head = ["VMs", "cgroups", "arm", &loses, "share closed", "profiles with headroom"];
    let row = |h: &Headroom| {
        let names = if h.profiles.is_empty() { "none".into() } else { h.profiles.join(" ") };
        vec![
            h.place.vms.to_string(),
            cgroups_and_lock(&h.place),
            h.arm.clone(),
            percent(h.stock_loss),
            percent(h.closed),
            names,
        ]
    };
    let title = format!("headroom to ideal ({}, {})", s.machine, s.kernel);
    let unseen: String = s.headroom.iter().filter_map(unseen).collect();
    titled(&title, 3, None, &head, s.headroom.iter().map(row).collect(), width) + &unseen
}

/// A line about programs whose loss is not due to pause-loop exits.
fn unseen(h: &Headroom) -> Option<String> {
    if h.unseen.is_empty() {
        return None;
    }
    let vms = count(h.place.vms, "VM");
    let place = format!("{vms}, {}, {}", cgroups_and_lock(&h.place), h.arm);
    let programs = h.unseen.join(" ");
    Some(format!(
        "{place}: not in it, as pause-loop exits see nothing of their headroom: {programs}\n"
    ))
}
