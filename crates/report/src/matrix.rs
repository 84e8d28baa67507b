// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks against host policies: results with swept locks as one page of Markdown and a heat map.
//!
//! Unlike the tables of a scenario, which compare arms under one lock, everything here is divided by
//! the throughput of one cell: the ticket lock on stock KVM with as many VMs.

use crate::aggregate::{distinct_runs, same_document};
use crate::heat::{heat_map, Cell, Panel};
use crate::input::{Input, Stream};
use crate::measures::per_second;
use crate::stat::{jain, median, spread, Verdict};
use std::collections::BTreeMap;
use std::fmt::Write;
use unspin_scenario::plan::Window;
use unspin_scenario::result::{ModuleStats, RunResult};

/// Lock and arm everything is divided by.
const BASE_LOCK: &str = "ticket";
/// Two cells further apart than this (as a ratio) and told apart by the seeds are worth a sentence.
const WORTH_SAYING: f64 = 0.05;

/// Why results make no matrix.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MatrixError {
    #[error("the results sweep no locks; run a scenario with [sweep] locks, such as matrix")]
    NoLocks,
    #[error("the results have no runs of lock {BASE_LOCK} under arm {arm:?} with {vms} VMs of {profile}, which all others are divided by")]
    NoBase { arm: String, vms: u32, profile: String },
}

/// A page, and the pictures it shows: name of the file beside the page, and its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    pub page: String,
    pub pictures: Vec<(String, String)>,
}

/// All repeats of one lock under one arm with one number of VMs, by repeat.
#[derive(Debug, Default)]
struct Runs<'a>(BTreeMap<u32, &'a RunResult>);

/// One cell's figures.
#[derive(Debug, Clone, PartialEq)]
struct Figures {
    performance: f64,
    /// `None` for the cell all others are divided by.
    verdict: Option<Verdict>,
    ratios: Vec<f64>,
    /// Share of CPU time spent spinning up to exits and handling them; unknown without PLE.
    inefficiency: Option<f64>,
    kicks_per_s: Option<f64>,
    /// Jain's index over all vCPUs of all VMs.
    fairness: Option<f64>,
    /// False: an arm that adapts had not.
    adapted: bool,
}

type Key = (String, u32, String, String);

/// One kernel's results.
struct Table {
    kernel: String,
    stream: String,
    profiles: Vec<String>,
    vms: Vec<u32>,
    locks: Vec<String>,
    arms: Vec<String>,
    baseline: String,
    cells: BTreeMap<Key, Figures>,
}

/// The page over all kernels of `input`; `stem` names the pictures.
pub fn matrix(input: &Input, stem: &str) -> Result<Matrix, MatrixError> {
    let mut groups: Vec<Vec<&Stream>> = Vec::new();
    for s in &input.streams {
        match groups.iter_mut().find(|g| same_document(g[0], s)) {
            Some(g) => g.push(s),
            None => groups.push(vec![s]),
        }
    }
    let mut page = String::from(HEAD);
    let mut pictures = Vec::new();
    for group in &groups {
        let mut notices = Vec::new();
        let runs = distinct_runs(group, &mut notices);
        let table = table(group, &runs)?;
        section(&mut page, &table, &notices);
        for profile in &table.profiles {
            let series: Vec<&str> = table.kernel.split(['.', '-', '+']).take(2).collect();
            let name = format!("{stem}-{profile}-{}.svg", series.join("."));
            // Writing to a String cannot fail.
            let _ = writeln!(page, "\n### {profile}\n\n![{profile}: throughput against ticket and {}, by number of VMs]({name})", table.baseline);
            say(&mut page, &table, profile);
            for vms in &table.vms {
                grids(&mut page, &table, profile, *vms);
            }
            pictures.push((name, picture(&table, profile)));
        }
    }
    if groups.is_empty() {
        return Err(MatrixError::NoLocks);
    }
    Ok(Matrix { page, pictures })
}

const HEAD: &str = "# Guest locks and host policies\n\n\
    Made by `unspin report --matrix` from measured results; `make matrix` measures them again. Every \
    cell is the throughput (work of all VMs, counted) divided by that of the `ticket` lock on \
    stock KVM with as many VMs: ratio of the medians over seeds. **~**: the spread over the seeds does \
    not let one tell the cell from 1. **!**: the arm adapts its window and had not (under 10 rounds a VM). \
    Every run also checked that no two vCPUs ever held a lock at once.\n";

fn table(streams: &[&Stream], runs: &[&RunResult]) -> Result<Table, MatrixError> {
    let mut of: BTreeMap<Key, Runs> = BTreeMap::new();
    let mut t = Table {
        kernel: streams[0].begin.kernel.clone(),
        stream: origin(streams, runs),
        profiles: Vec::new(),
        vms: Vec::new(),
        locks: Vec::new(),
        arms: Vec::new(),
        baseline: String::new(),
        cells: BTreeMap::new(),
    };
    let mut in_order: Vec<&&RunResult> =
        runs.iter().filter(|r| !r.run.alone && !r.run.lock_group.is_empty()).collect();
    // Boots share the plan: its order is that of the scenario.
    in_order.sort_by_key(|r| r.run.id);
    for r in in_order {
        let run = &r.run;
        t.baseline.clone_from(&run.baseline);
        note(&mut t.profiles, &run.profile);
        note(&mut t.vms, &run.vms);
        note(&mut t.locks, &run.lock_group);
        note(&mut t.arms, &run.arm.name);
        let key = (run.profile.clone(), run.vms, run.lock_group.clone(), run.arm.name.clone());
        of.entry(key).or_default().0.insert(run.repeat, r);
    }
    if of.is_empty() {
        return Err(MatrixError::NoLocks);
    }
    t.vms.sort_unstable();
    for (key, runs) in &of {
        let (profile, vms, ..) = key;
        let base_key = (profile.clone(), *vms, BASE_LOCK.to_string(), t.baseline.clone());
        let base = of.get(&base_key).ok_or_else(|| MatrixError::NoBase {
            arm: t.baseline.clone(),
            vms: *vms,
            profile: profile.clone(),
        })?;
        if let Some(f) = figures(runs, base, *key == base_key) {
            t.cells.insert(key.clone(), f);
        }
    }
    Ok(t)
}

fn note<T: PartialEq + Clone>(all: &mut Vec<T>, x: &T) {
    if !all.contains(x) {
        all.push(x.clone());
    }
}

fn throughput(r: &RunResult) -> f64 {
    per_second(r, r.vm.iter().flat_map(|v| &v.units).sum())
}

fn figures(runs: &Runs, base: &Runs, is_base: bool) -> Option<Figures> {
    let all: Vec<&RunResult> = runs.0.values().copied().collect();
    let of = |f: &dyn Fn(&RunResult) -> Option<f64>| {
        median(&all.iter().filter_map(|r| f(r)).collect::<Vec<_>>())
    };
    let base_throughput = median(&base.0.values().map(|r| throughput(r)).collect::<Vec<_>>())?;
    let own = of(&|r| Some(throughput(r)))?;
    let paired =
        |(repeat, r): (&u32, &&RunResult)| Some(throughput(r) / throughput(base.0.get(repeat)?));
    let ratios: Vec<f64> = runs.0.iter().filter_map(paired).collect();
    let adapts = matches!(all.first()?.run.arm.window, Window::Aple(_));
    let rounds =
        |r: &RunResult| r.vm.iter().filter_map(|v| Some(v.module.as_ref()?.rounds_total)).min();
    let fewest = all.iter().filter_map(|r| rounds(r)).min();
    (base_throughput > 0.0).then(|| Figures {
        performance: own / base_throughput,
        verdict: spread(&ratios).filter(|_| !is_base).map(|s| Verdict::of(&s)),
        inefficiency: of(&inefficiency),
        kicks_per_s: of(&|r| Some(per_second(r, sum(r, |m| m.hypercalls_kick)?))),
        fairness: of(&fairness),
        adapted: !adapts || fewest.is_some_and(|n| n >= crate::aggregate::ROUNDS_MIN),
        ratios,
    })
}

fn sum(r: &RunResult, f: fn(&ModuleStats) -> u64) -> Option<u64> {
    let all: Option<Vec<&ModuleStats>> = r.vm.iter().map(|v| v.module.as_ref()).collect();
    Some(all?.into_iter().map(f).sum())
}

fn inefficiency(r: &RunResult) -> Option<f64> {
    if r.run.arm.window == Window::Off {
        return None;
    }
    let wasted = sum(r, |m| m.wasteful_spin_cycles + m.wasteful_switch_cycles)?;
    let cpu = sum(r, |m| m.cpu_cycles)?;
    (cpu > 0).then(|| wasted as f64 / cpu as f64)
}

fn fairness(r: &RunResult) -> Option<f64> {
    jain(&r.vm.iter().flat_map(|v| &v.units).map(|u| *u as f64).collect::<Vec<_>>())
}

fn origin(streams: &[&Stream], runs: &[&RunResult]) -> String {
    let begin = &streams[0].begin;
    let mut ms: Vec<(u64, u64)> = Vec::new();
    let (mut seeds, mut clocks) = (Vec::new(), Vec::new());
    for r in runs {
        note(&mut ms, &(r.run.warmup_ms, r.run.window_ms));
        note(&mut seeds, &r.run.seed);
        note(&mut clocks, &r.run.lock_clock_mhz);
    }
    seeds.sort_unstable();
    let list = |all: Vec<String>| all.join(" and ");
    let windows = list(ms.iter().map(|(w, m)| format!("{m} ms after {w} ms")).collect());
    let seeds = seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let clocks = list(
        clocks
            .iter()
            .map(|c| match c {
                Some(mhz) => format!("{mhz} cycles a microsecond"),
                None => "the machine's own clock".to_string(),
            })
            .collect(),
    );
    let tsc = begin.tsc_khz.map_or(String::new(), |k| format!(" of {} MHz", k / 1000));
    let complete = streams.iter().all(|s| s.ended && s.failed.is_empty());
    format!(
        "Machine {}, kernel {}, {} pCPUs{tsc}, {} runs; windows of {windows} of the machine's time; seeds {seeds}; \
         the locks' budgets at {clocks}; commit {}.{}",
        begin.machine,
        begin.kernel,
        begin.pcpus,
        runs.len(),
        begin.commit.as_deref().unwrap_or("unknown"),
        if complete { "" } else { " **Incomplete.**" }
    )
}

fn section(page: &mut String, t: &Table, notices: &[String]) {
    let _ = writeln!(page, "\n## Kernel {}\n\n{}", t.kernel, t.stream);
    for n in notices {
        let _ = writeln!(page, "\nnote: {n}");
    }
}

impl Table {
    fn cell(&self, profile: &str, vms: u32, lock: &str, arm: &str) -> Option<&Figures> {
        self.cells.get(&(profile.to_string(), vms, lock.to_string(), arm.to_string()))
    }
}

fn mark(f: &Figures) -> &'static str {
    match (f.adapted, f.verdict) {
        (false, _) => " !",
        (true, Some(Verdict::CannotTell)) => " ~",
        _ => "",
    }
}

fn grids(page: &mut String, t: &Table, profile: &str, vms: u32) {
    let plural = if vms == 1 { "" } else { "s" };
    let _ = writeln!(page, "\n#### {profile}, {vms} VM{plural}\n");
    let head = t.arms.join(" | ");
    let rule = "---:|".repeat(t.arms.len());
    let _ = writeln!(page, "| throughput | {head} |\n|---|{rule}");
    grid_rows(page, t, profile, vms, |f| format!("{:.2}{}", f.performance, mark(f)));
    let _ = writeln!(page, "\n| wasted · kicks/s · fairness | {head} |\n|---|{rule}");
    grid_rows(page, t, profile, vms, |f| {
        let wasted = f.inefficiency.map_or("–".to_string(), |x| format!("{:.0} %", 100.0 * x));
        let kicks = f.kicks_per_s.map_or("–".to_string(), |x| format!("{x:.0}"));
        let fairness = f.fairness.map_or("–".to_string(), |x| format!("{x:.2}"));
        format!("{wasted} · {kicks} · {fairness}")
    });
}

fn grid_rows(
    page: &mut String,
    t: &Table,
    profile: &str,
    vms: u32,
    show: impl Fn(&Figures) -> String,
) {
    for lock in &t.locks {
        let cells: Vec<String> = t
            .arms
            .iter()
            .map(|arm| t.cell(profile, vms, lock, arm).map_or("–".to_string(), &show))
            .collect();
        let _ = writeln!(page, "| {lock} | {} |", cells.join(" | "));
    }
}

/// What the cells say, in sentences that only figures decide.
fn say(page: &mut String, t: &Table, profile: &str) {
    page.push('\n');
    for vms in &t.vms {
        let mut cells: Vec<(&str, &str, &Figures)> = Vec::new();
        for lock in &t.locks {
            for arm in &t.arms {
                cells.extend(t.cell(profile, *vms, lock, arm).map(|f| (&**lock, &**arm, f)));
            }
        }
        let by_performance = |a: &&(&str, &str, &Figures), b: &&(&str, &str, &Figures)| {
            a.2.performance.total_cmp(&b.2.performance)
        };
        let Some(best) = cells.iter().max_by(by_performance) else { continue };
        let plural = if *vms == 1 { "" } else { "s" };
        let _ = write!(
            page,
            "* **{vms} VM{plural}**: best {} under {} ({:.2}{})",
            best.0,
            best.1,
            best.2.performance,
            mark(best.2)
        );
        let ticket = cells.iter().filter(|c| c.0 == BASE_LOCK).max_by(by_performance);
        if let Some(ticket) = ticket.filter(|c| c.0 != best.0) {
            let _ = write!(
                page,
                ", best policy for ticket {} ({:.2}{})",
                ticket.1,
                ticket.2.performance,
                mark(ticket.2)
            );
        }
        page.push('.');
        let lists = [
            ("apples gains on stock under", gains(t, profile, *vms, 1.0)),
            ("apples loses to stock under", gains(t, profile, *vms, -1.0)),
        ];
        for (what, locks) in lists.iter().filter(|(_, locks)| !locks.is_empty()) {
            let _ = write!(page, " {what} {}.", locks.join(", "));
        }
        page.push('\n');
    }
}

/// Locks under which apples is better (`sign` 1) or worse (−1) than the baseline by more than is
/// worth saying, seed by seed.
fn gains(t: &Table, profile: &str, vms: u32, sign: f64) -> Vec<String> {
    let gain = |lock: &String| {
        let apples = t.cell(profile, vms, lock, "apples")?;
        let stock = t.cell(profile, vms, lock, &t.baseline)?;
        let each: Vec<f64> = apples.ratios.iter().zip(&stock.ratios).map(|(a, s)| a / s).collect();
        let s = spread(&each).filter(|s| s.n >= 2)?;
        let told = if sign > 0.0 { s.low > 1.0 } else { s.high < 1.0 };
        let by = apples.performance / stock.performance - 1.0;
        (told && by * sign > WORTH_SAYING).then(|| format!("{lock} ({:+.0} %)", 100.0 * by))
    };
    t.locks.iter().filter_map(gain).collect()
}

fn picture(t: &Table, profile: &str) -> String {
    let panel = |vms: &u32| Panel {
        title: format!("{vms} VM{}", if *vms == 1 { "" } else { "s" }),
        rows: t
            .locks
            .iter()
            .map(|lock| {
                let cells = t.arms.iter().map(|arm| {
                    t.cell(profile, *vms, lock, arm).map(|f| Cell {
                        value: f.performance,
                        certain: f.verdict != Some(Verdict::CannotTell) && f.adapted,
                    })
                });
                (lock.clone(), cells.collect())
            })
            .collect(),
    };
    let panels: Vec<Panel> = t.vms.iter().map(panel).collect();
    let title = format!(
        "{profile}, kernel {}: throughput against {BASE_LOCK} and {}",
        t.kernel, t.baseline
    );
    heat_map(&title, &t.arms, &panels)
}
