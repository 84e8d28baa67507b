// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cgroups and VMs compete with which: the tree.

use super::document::{Document, OfGroup, Shown};
use super::share::BUSY_MIN;
use crate::fit::{self, Column};
use std::collections::{BTreeMap, BTreeSet};
use unspin_text::{printable, printable_lines};

/// Larger numbers are shown as this one: a quota or a weight may be any number.
const NUMBER_MAX: f64 = 1e6;
/// The text only counts further notes.
const NOTES_MAX: usize = 12;

struct Row {
    name: String,
    vm: Option<Vm>,
    numbers: [String; 5],
    inside: Vec<Row>,
}

#[derive(Clone)]
struct Vm {
    pid: u32,
    title: String,
}

struct Label {
    /// The branches of the tree.
    before: String,
    name: String,
    vm: Option<Vm>,
}

impl Label {
    /// What stands for the name if it would look like another's when it is cut.
    fn short(&self) -> &str {
        self.vm.as_ref().map_or(self.name.as_str(), |vm| vm.title.as_str())
    }

    /// What stands for that if it has no room.
    fn least(&self) -> String {
        self.vm.as_ref().map_or(self.name.clone(), |vm| format!("pid:{}", vm.pid))
    }
}

pub fn text(document: &Document, width: usize) -> String {
    let (mut rows, mut labels) = (Vec::new(), Vec::new());
    let mut shower = Shower::new(document);
    for root in shower.children(None) {
        let row = shower.row(root);
        push(&mut rows, &mut labels, &row, ["", ""]);
    }
    let columns = [
        Column::text("cgroup", 0),
        Column::number("weight", 5),
        Column::number("quota", 4),
        Column::number("entitled", 2),
        Column::number("got", 1),
        Column::number("CPUs", 3),
    ];
    let of_cpus = match document.cpus {
        Some(1) => " of 1 CPU".into(),
        Some(cpus) => format!(" of {cpus} CPUs"),
        None => String::new(),
    };
    let head = format!("CPU time{of_cpus} by cgroup, {:.1} s", document.window_s);
    let mut text = fit::wrap_lines(&head, width);
    let cut_all = |names: &[&str], max: usize| -> Vec<String> {
        let title = names.first().map(|title| fit::cut_end(title, max));
        title.into_iter().chain(cut_labels(&labels, max)).collect()
    };
    text += &fit::table_with(&columns, &rows, width, &cut_all);
    let notes = notes(document, shower.idle);
    let more = notes.len().saturating_sub(NOTES_MAX);
    let more = (more > 0).then(|| format!("and {more} more; --json has all"));
    for note in notes.iter().take(NOTES_MAX).chain(&more) {
        text += &(fit::wrap(&printable(note), width, "* ").join("\n") + "\n");
    }
    printable_lines(&text)
}

/// `before`: the branches before the row, and `below`: those before the rows inside it.
fn push(
    rows: &mut Vec<Vec<String>>,
    labels: &mut Vec<Label>,
    row: &Row,
    [before, below]: [&str; 2],
) {
    let mut cells = vec![format!("{before}{}", row.name)];
    cells.extend(row.numbers.iter().cloned());
    rows.push(cells);
    labels.push(Label { before: before.into(), name: row.name.clone(), vm: row.vm.clone() });
    for (at, inner) in row.inside.iter().enumerate() {
        let (branch, next) = match at + 1 == row.inside.len() {
            true => ("└ ", "  "),
            false => ("├ ", "│ "),
        };
        push(rows, labels, inner, [&format!("{below}{branch}"), &format!("{below}{next}")]);
    }
}

/// First cells of at most `max` cells. A VM's name comes before that of its cgroup, which is left out if the rest would
/// look like another row.
fn cut_labels(labels: &[Label], max: usize) -> Vec<String> {
    let room = |label: &Label| max.saturating_sub(fit::cells(&label.before));
    let mut names: Vec<&str> = labels.iter().map(|label| label.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let is_alike = |cut: &str, name: &str| {
        let Some(kept) = cut.strip_suffix('…').filter(|_| cut != name) else { return false };
        let from = names.partition_point(|other| *other < kept);
        let mut beginning = names[from..].iter().take_while(|other| other.starts_with(kept));
        beginning.any(|other| *other != name)
    };
    let shorts: Vec<&str> = labels.iter().map(Label::short).collect();
    let least: Vec<String> = labels.iter().map(Label::least).collect();
    // By room.
    let mut apart: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut all = Vec::new();
    for (at, label) in labels.iter().enumerate() {
        let room = room(label);
        let mut cut = fit::cut_end(&label.name, room);
        if is_alike(&cut, &label.name) {
            let of_room = apart.entry(room);
            let of_room = of_room.or_insert_with(|| fit::cut_apart(&shorts, &least, room));
            cut.clone_from(&of_room[at]);
        }
        all.push(fit::cut_end(&format!("{}{cut}", label.before), max));
    }
    all
}

struct Shower<'a> {
    document: &'a Document,
    inside: BTreeMap<Option<&'a str>, Vec<&'a OfGroup>>,
    /// Number of cgroups without VMs that are left out because they are idle.
    idle: usize,
}

impl<'a> Shower<'a> {
    fn new(document: &'a Document) -> Shower<'a> {
        let mut inside: BTreeMap<Option<&str>, Vec<&OfGroup>> = BTreeMap::new();
        for group in &document.groups {
            inside.entry(group.within.as_deref()).or_default().push(group);
        }
        // By CPU time, largest first.
        let cpus = |group: &OfGroup| group.cpus.unwrap_or(0.0);
        for beside in inside.values_mut() {
            beside.sort_by(|a, b| cpus(b).total_cmp(&cpus(a)));
        }
        Shower { document, inside, idle: 0 }
    }

    fn children(&self, within: Option<&str>) -> Vec<&'a OfGroup> {
        self.inside.get(&within).cloned().unwrap_or_default()
    }

    fn has_vm(&self, group: &OfGroup) -> bool {
        group.own.is_some()
            || !group.threads_of.is_empty()
            || self.children(Some(&group.path)).iter().any(|inner| self.has_vm(inner))
    }

    fn row(&mut self, group: &OfGroup) -> Row {
        let mut inside = Vec::new();
        for inner in self.children(Some(&group.path)) {
            if inner.is_busy == Some(false) && !self.has_vm(inner) && group.own.is_none() {
                self.idle += 1;
            } else {
                inside.push(self.row(inner));
            }
        }
        inside.extend(group.threads_of.iter().map(|pid| self.thread_row(*pid, group)));
        let rest = group.rest_cpus.filter(|rest| *rest >= BUSY_MIN);
        inside.extend(rest.map(|rest| {
            let what = if group.within.is_none() { "tasks in no cgroup" } else { "other tasks" };
            let got = share(group.cpus.map(|all| rest / all));
            row(what.into(), ["", "", "", &got, &number(rest, 2)])
        }));
        let weight = match (group.within.as_ref(), group.weight) {
            (None, _) => String::new(),
            (_, None) => "?".into(),
            (_, Some(weight)) if weight < 10.0 && weight.fract() > 0.0 => number(weight, 1),
            (_, Some(weight)) => number(weight, 0),
        };
        let entitled = match (group.within.as_ref(), group.is_busy) {
            (None, _) => String::new(),
            (_, Some(false)) if group.ended => "ended".into(),
            (_, Some(false)) => "idle".into(),
            _ if group.own_cpus.is_some() || group.apart_cpus.is_some() => "own CPUs".into(),
            _ => share(group.entitled),
        };
        let got = if group.within.is_none() { String::new() } else { share(group.got) };
        let quota = group.quota_cpus.map_or(String::new(), |cpus| number(cpus, 2));
        // If the kernel does not account the cgroup, the VMM's process has most of the VM's CPU
        // time.
        let vm = group.own.and_then(|pid| self.document.all.get(&pid)?.cpus);
        let cpus = group.cpus.or(vm).map_or("?".into(), |cpus| number(cpus, 2));
        let vm = group.own.and_then(|pid| self.vm(pid));
        Row { inside, vm, ..row(self.name(group), [&weight, &quota, &entitled, &got, &cpus]) }
    }

    fn thread_row(&self, pid: u32, group: &OfGroup) -> Row {
        let Some(vm) = self.document.all.get(&pid) else { return row(String::new(), [""; 5]) };
        let weighed = if vm.ended { Some(0.0) } else { vm.cpus };
        let both = weighed.zip(group.cpus).filter(|(_, all)| *all > 0.0);
        let got = share(both.map(|(is, all)| is / all));
        let cpus = vm.cpus.map_or("?".into(), |cpus| number(cpus, 2));
        let entitled = if vm.ended { "ended" } else { "" };
        let numbers: [&str; 5] = ["", "", entitled, &got, &cpus];
        Row { vm: self.vm(pid), ..row(printable(&vm.name), numbers) }
    }

    fn vm(&self, pid: u32) -> Option<Vm> {
        let title = printable(&self.document.all.get(&pid)?.name);
        Some(Vm { pid, title })
    }

    fn name(&self, group: &OfGroup) -> String {
        let last = match group.path.rsplit_once('/') {
            Some((_, last)) if !last.is_empty() => last,
            _ => "/",
        };
        let vm = group.own.and_then(|pid| self.document.all.get(&pid));
        let name = vm.map_or(last.to_string(), |vm| format!("{} ({last})", vm.name));
        printable(&name)
    }
}

fn row(name: String, numbers: [&str; 5]) -> Row {
    Row { name, vm: None, numbers: numbers.map(str::to_string), inside: Vec::new() }
}

fn number(number: f64, decimals: usize) -> String {
    match number {
        _ if number >= NUMBER_MAX => format!("≥ {NUMBER_MAX:.0}"),
        _ if number >= 10_000.0 => format!("{number:.0}"),
        _ => format!("{number:.decimals$}"),
    }
}

fn share(share: Option<f64>) -> String {
    share.map_or("?".into(), fit::percent)
}

/// The chosen VMs, and the others in the table.
fn shown(document: &Document) -> impl Iterator<Item = &Shown> {
    let around = document.groups.iter().flat_map(|group| group.own.iter().chain(&group.threads_of));
    let pids: BTreeSet<u32> =
        document.vms.iter().map(|vm| &vm.pid).chain(around).copied().collect();
    pids.into_iter().filter_map(move |pid| document.all.get(&pid))
}

fn ended(document: &Document) -> Option<String> {
    let ended = |pid: &u32| document.all.get(pid).filter(|vm| vm.ended);
    let vms = shown(document).filter(|vm| vm.ended).map(|vm| vm.name.as_str());
    let is_other =
        |group: &&OfGroup| group.ended && group.own.and_then(|pid| ended(&pid)).is_none();
    let groups = document.groups.iter().filter(is_other);
    let all: Vec<&str> =
        vms.chain(groups.filter_map(|group| group.path.rsplit('/').next())).collect();
    (!all.is_empty()).then(|| format!("{} ended during the measurement", list(&all)))
}

/// The first of these names, and how many there are more.
fn list(names: &[&str]) -> String {
    let more = names.len().saturating_sub(NOTES_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.iter().take(NOTES_MAX).copied().collect::<Vec<_>>().join(", ") + &more
}

/// About VMs that have no cgroup of their own with a weight.
fn of_threads(document: &Document, group: &OfGroup) -> Vec<String> {
    let vms = group.threads_of.iter().filter_map(|pid| document.all.get(pid));
    let (several, others): (Vec<&Shown>, Vec<&Shown>) = vms.partition(|vm| vm.groups.len() > 1);
    let of_several = |vm: &&Shown| {
        let groups: Vec<&str> = vm.groups.iter().map(String::as_str).collect();
        format!("{}: its vCPUs are in several cgroups: {}", vm.name, list(&groups))
    };
    let mut notes: Vec<String> = several.iter().map(of_several).collect();
    let names: Vec<&str> = others.iter().map(|vm| vm.name.as_str()).collect();
    let (all, is_one) = (list(&names), names.len() == 1);
    let path = &group.path;
    notes.extend(match (names.is_empty(), group.within.is_none()) {
        (true, _) => None,
        (_, true) if document.autogroups => Some(format!(
            "{all} {} in no cgroup with a weight: there each session competes as one, whoever is in \
             it (sched_autogroup)",
            if is_one { "is" } else { "are" }
        )),
        (_, true) => Some(format!(
            "{all} {} thread by thread, in no cgroup with a weight",
            if is_one { "competes" } else { "compete" }
        )),
        (_, false) if is_one => Some(format!(
            "{all} has no cgroup with a weight of its own: its threads compete with all tasks of \
             {path}"
        )),
        (_, false) => Some(format!(
            "{all} share {path}: they have no cgroup each, and compete thread by thread"
        )),
    });
    notes
}

/// About those that do not compete by weight with what is beside them.
fn of_cpus(document: &Document) -> Vec<String> {
    let alone = |group: &OfGroup| {
        let path = &group.path;
        Some(match group.own_cpus.as_deref()? {
            "" => format!("{path} is a cpuset partition whose CPUs are all of partitions in it"),
            cpus => format!(
                "{path} has CPUs {cpus} alone (a cpuset partition), and competes with no cgroup \
                 beside it"
            ),
        })
    };
    let mut notes: Vec<String> = document.groups.iter().filter_map(alone).collect();
    let apart = document.groups.iter().filter(|group| group.apart_cpus.is_some());
    let vm = |group: &OfGroup| group.own.and_then(|pid| document.all.get(&pid));
    let apart: Vec<&str> = apart
        .filter_map(|group| match vm(group) {
            Some(vm) => Some(vm.name.as_str()),
            None => group.path.rsplit('/').next(),
        })
        .collect();
    if !apart.is_empty() {
        let all = list(&apart);
        notes.push(format!("own CPUs: no busy cgroup beside it may use those of {all}"));
    }
    let real_time: Vec<&str> =
        shown(document).filter(|vm| vm.is_real_time).map(|vm| vm.name.as_str()).collect();
    if !real_time.is_empty() {
        let all = list(&real_time);
        notes.push(format!("weights do not hold for real-time vCPUs, which run first: {all}"));
    }
    notes
}

fn notes(document: &Document, idle: usize) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(document.sched_ext.clone());
    let name = |pid: &u32| document.all.get(pid).map_or("", |vm| vm.name.as_str());
    notes.extend(ended(document));
    document.groups.iter().for_each(|group| notes.extend(of_threads(document, group)));
    notes.extend(of_cpus(document));
    for vm in &document.vms {
        let name = name(&vm.pid);
        if let Some(why) = &vm.unknown {
            notes.push(format!("{name} is not in the table: {why}"));
        }
        let is_shown = |path: &str| document.groups.iter().any(|group| group.path == path);
        for quota in vm.quotas.iter().filter(|quota| !is_shown(&quota.path)) {
            let cpus = number(quota.cpus, 2);
            notes.push(format!("{name}: a quota of {cpus} CPUs of {}", quota.path));
        }
    }
    if document.groups.iter().any(|group| group.version == 1) {
        notes.push("weights are cpu.shares of version 1, × 100/1024".into());
    }
    if idle > 0 {
        let of = if idle == 1 { "cgroup that was" } else { "cgroups that were" };
        notes.push(format!("{idle} {of} idle, without VMs, not in the table"));
    }
    notes
}
