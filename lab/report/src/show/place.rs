// SPDX-License-Identifier: MIT OR Apache-2.0
//! Points and their names, their rows, and arms and profiles in order.

use crate::summary::{Document, Place, Row, Summary};
use unspin_scenario::{Named, IDEAL_ARM};
pub(crate) use unspin_text::counted as count;
pub(crate) use unspin_text::names::distinct;

/// The points at which arms are compared, in the order of the rows.
pub(crate) fn places(s: &Summary) -> Vec<Place> {
    distinct(s.arms.iter().map(|r| r.key.place()))
}

/// The rows of a point over all VMs.
pub(crate) fn rows_at<'a>(s: &'a Summary, place: &Place) -> Vec<&'a Row> {
    s.arms.iter().filter(|r| r.key.is_whole() && r.key.place() == *place).collect()
}

/// The reference arm.
pub(crate) fn baseline(s: &Summary) -> &str {
    s.arms.first().map_or("the baseline", |r| r.key.baseline.as_str())
}

/// Arms in the order of the table; ideal last.
pub(crate) fn arm_order<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut arms = distinct(rows.iter().map(|r| r.key.arm.as_str()));
    arms.sort_by_key(|a| *a == IDEAL_ARM);
    arms
}

pub(crate) fn profile_order<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    distinct(rows.iter().map(|r| r.key.profile.as_str()))
}

/// The origin of the figures, in one line.
pub(crate) fn origin(s: &Summary) -> String {
    let p = &s.provenance;
    let mut line = format!("machine {} · kernel {}", s.machine, s.kernel);
    line += &match &p.module {
        Some(m) => format!(" · module {m}"),
        None => " · no module".to_string(),
    };
    let (runs, seeds) = (count(p.runs as u32, "run"), count(p.seeds.len() as u32, "seed"));
    line += &format!(" · {} · {runs}, {seeds}", count(p.pcpus, "pCPU"));
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

/// A short name for files: scenario, machine and kernel series.
pub(crate) fn stem(d: &Document) -> String {
    let s = &d.summary;
    format!("{}-{}-{}", safe(&s.scenario), safe(&s.machine), series(&s.kernel))
}

/// A kernel's series (6.12 of 6.12.117+deb12-cloud-amd64) in the name of a file.
pub(crate) fn series(kernel: &str) -> String {
    let parts: Vec<&str> = kernel.split(['.', '-', '+']).take(2).collect();
    safe(&parts.join("."))
}

/// Text that is safe in the name of a file, and in links to it.
fn safe(s: &str) -> String {
    s.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.', "_")
}

/// A point in the name of a file.
pub(crate) fn file_part(place: &Place) -> String {
    let lock = if place.lock.is_empty() { String::new() } else { format!("-{}", place.lock) };
    format!("{}vm-{}{lock}", place.vms, place.cgroup.called())
}

pub(crate) fn cgroups_and_lock(place: &Place) -> String {
    match place.lock.as_str() {
        "" => place.cgroup.called().to_string(),
        lock => format!("{}, {lock}", place.cgroup.called()),
    }
}

pub(crate) fn percent(x: Option<f64>) -> String {
    x.map_or("-".to_string(), |x| format!("{:.0} %", x * 100.0))
}
