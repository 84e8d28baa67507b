// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks against host policies as one page of Markdown and a heat map per kernel and profile.
//!
//! Unlike the tables of a scenario, which compare arms under one lock, all figures here are relative
//! to the throughput of one cell: the ticket lock on stock KVM with as many VMs.

use crate::lock_table::{Figures, LockTable, BASE_LOCK};
use crate::show::heat::{heat_map, Cell, Panel};
use crate::show::place::{count, series};
use crate::stat::{spread, Verdict};
use std::fmt::Write;

/// Cells that differ by more than this ratio, and significantly over the seeds, are mentioned in a
/// sentence.
const WORTH_SAYING: f64 = 0.05;

/// A page and its pictures: the name of the file beside the page, and its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    pub page: String,
    pub pictures: Vec<(String, String)>,
}

/// The page of all tables; `stem` is the prefix of the pictures' names.
pub fn matrix(tables: &[LockTable], stem: &str) -> Matrix {
    let mut page = String::from(HEAD);
    let mut pictures = Vec::new();
    for t in tables {
        section(&mut page, t);
        for profile in &t.profiles {
            let name = format!("{stem}-{profile}-{}.svg", series(&t.kernel));
            // Writing to a String cannot fail.
            let _ = writeln!(page, "\n### {profile}\n\n![{profile}: throughput against ticket and {}, by number of VMs]({name})", t.baseline);
            say(&mut page, t, profile);
            for vms in &t.vms {
                grids(&mut page, t, profile, *vms);
            }
            pictures.push((name, picture(t, profile)));
        }
    }
    Matrix { page, pictures }
}

const HEAD: &str = "# Guest locks and host policies\n\n\
    Made by `unspin-lab report --matrix` from measured results; `make matrix` measures them again. Every \
    cell is the throughput of all VMs divided by that of the `ticket` lock on stock KVM with the same \
    number of VMs: the ratio of the medians over the seeds. **~**: not significantly different from 1 over \
    the seeds. *Wasted* is the share of CPU time lost to PLE exits, *kicks* wake up halted waiters, \
    *fairness* is Jain's index over all vCPUs. Every run also checked that no two vCPUs ever held a lock at once.\n";

fn section(page: &mut String, t: &LockTable) {
    let _ = writeln!(page, "\n## Kernel {}\n\n{}", t.kernel, t.origin);
    for n in &t.notices {
        let _ = writeln!(page, "\nnote: {n}");
    }
}

fn mark(f: &Figures) -> &'static str {
    match f.verdict {
        Some(Verdict::CannotTell) => " ~",
        Some(Verdict::Better | Verdict::Worse) | None => "",
    }
}

fn grids(page: &mut String, t: &LockTable, profile: &str, vms: u32) {
    let _ = writeln!(page, "\n#### {profile}, {}\n", count(vms, "VM"));
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
    t: &LockTable,
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

/// Sentences about the cells, derived from the figures alone.
fn say(page: &mut String, t: &LockTable, profile: &str) {
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
        let _ = write!(
            page,
            "* **{}**: best: {} under {} ({:.2}{})",
            count(*vms, "VM"),
            best.0,
            best.1,
            best.2.performance,
            mark(best.2)
        );
        let ticket = cells.iter().filter(|c| c.0 == BASE_LOCK).max_by(by_performance);
        if let Some(ticket) = ticket.filter(|c| c.0 != best.0) {
            let _ = write!(
                page,
                "; best policy for ticket: {} ({:.2}{})",
                ticket.1,
                ticket.2.performance,
                mark(ticket.2)
            );
        }
        page.push('.');
        let lists = [
            ("apples gains over stock with", gains(t, profile, *vms, 1.0)),
            ("apples loses to stock with", gains(t, profile, *vms, -1.0)),
        ];
        for (what, locks) in lists.iter().filter(|(_, locks)| !locks.is_empty()) {
            let _ = write!(page, " {what} {}.", locks.join(", "));
        }
        for arm in &t.arms {
            let own = || cells.iter().filter(|c| c.1 == arm);
            let still: Vec<&str> = own().filter(|c| c.2.is_still).map(|c| c.0).collect();
            let under = match still.len() {
                0 => continue,
                n if n == own().count() => "any lock".to_string(),
                _ => still.join(", "),
            };
            let _ = write!(page, " {arm} never moved its window with {under}.");
        }
        page.push('\n');
    }
}

/// Locks under which apples is better (`sign` 1) or worse (−1) than the baseline by more than
/// [`WORTH_SAYING`], for every seed.
fn gains(t: &LockTable, profile: &str, vms: u32, sign: f64) -> Vec<String> {
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

fn picture(t: &LockTable, profile: &str) -> String {
    let panel = |vms: &u32| Panel {
        title: count(*vms, "VM"),
        rows: t
            .locks
            .iter()
            .map(|lock| {
                let cells = t.arms.iter().map(|arm| {
                    t.cell(profile, *vms, lock, arm).map(|f| Cell {
                        value: f.performance,
                        certain: f.verdict != Some(Verdict::CannotTell),
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
