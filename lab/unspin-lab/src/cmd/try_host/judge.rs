// SPDX-License-Identifier: MIT OR Apache-2.0
//! Judges the measured scenarios: the gains, and whether any VM loses by turns.

use serde::Serialize;
use unspin_report::{Document, Row};

/// An arm's work relative to stock KVM.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gain {
    /// Where its threads spin: `kernel` or `user`.
    pub spins_in: &'static str,
    pub program: String,
    pub arm: String,
    /// Ratio of medians, and the 95 % interval of the ratios by seed.
    pub work: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub repeats: usize,
}

/// An acceptance test. The value must be at least, or at most, the bound.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// `victim`, `escape`, `billing` or `rollback`.
    pub check: &'static str,
    pub what: String,
    pub value: Option<f64>,
    pub bound: f64,
    pub unit: &'static str,
    /// `None`: it could not be measured.
    pub met: Option<bool>,
}

impl Check {
    pub fn at_most(
        check: &'static str,
        what: String,
        value: Option<f64>,
        bound: f64,
        unit: &'static str,
    ) -> Check {
        Check { check, what, value, bound, unit, met: value.map(|v| v <= bound) }
    }

    fn at_least(check: &'static str, what: String, value: Option<f64>, bound: f64) -> Check {
        let unit = "of the host";
        Check { check, what, value, bound, unit, met: value.map(|v| v >= bound) }
    }
}

/// Response times of a VM beside VMs with turns, relative to those with every VM off: at most this.
const VICTIM: f64 = 1.1;
/// The part of its share that a VM keeps beside one that leaves the guest all the time: at least
/// this.
const ESCAPE: f64 = 0.95;
/// What a VM gets beyond its quota, and what another one loses by that VM's turns: at most this.
const BILLING: f64 = 0.02;
const QUOTA: f64 = 0.2;

fn of<'a>(documents: &'a [Document], scenario: &'a str) -> impl Iterator<Item = &'a Row> {
    documents.iter().filter(move |d| d.summary.scenario == scenario).flat_map(|d| &d.summary.arms)
}

pub fn gains(documents: &[Document]) -> Vec<Gain> {
    let all = [("try", "kernel"), ("try-user", "user")].into_iter().flat_map(|(name, spins_in)| {
        let rows = of(documents, name).filter(|row| row.key.vm_index.is_none());
        rows.map(move |row| (row, spins_in))
    });
    all.filter(|(row, _)| row.key.arm != row.key.baseline && row.key.same_as.is_none())
        .map(|(row, spins_in)| Gain {
            spins_in,
            program: row.key.profile.clone(),
            arm: row.key.arm.clone(),
            work: row.perf.performance,
            low: row.perf.performance_low,
            high: row.perf.performance_high,
            repeats: row.perf.repeats,
        })
        .collect()
}

pub fn checks(documents: &[Document]) -> Vec<Check> {
    [victim(documents), escape(documents), billing(documents)].concat()
}

/// The 99.9th percentile of response times; the 99th if there are too few answers.
fn victim(documents: &[Document]) -> Vec<Check> {
    let rows: Vec<&Row> =
        of(documents, "gangs-victim").filter(|row| row.key.vm_index == Some(0)).collect();
    let answers = |row: &Row| row.response.map(|r| (r.p999_us, r.p99_us)).unwrap_or_default();
    let Some(stock) = rows.iter().find(|row| row.key.arm == row.key.baseline) else {
        return vec![Check::at_most("victim", "it was not measured".into(), None, VICTIM, "x")];
    };
    let before = answers(stock);
    rows.iter()
        .filter(|row| row.key.arm != row.key.baseline)
        .map(|row| {
            let now = answers(row);
            let rare = now.0.zip(before.0).map(|(now, before)| now / before);
            let (name, value) = match rare {
                Some(value) => ("99.9th", Some(value)),
                None => ("99th", now.1.zip(before.1).map(|(now, before)| now / before)),
            };
            let what = format!("{name} percentile of a VM's answers, arm {}", row.key.arm);
            Check::at_most("victim", what, value, VICTIM, "x every VM off")
        })
        .collect()
}

fn escape(documents: &[Document]) -> Vec<Check> {
    let due = |rows: &[&Row]| 1.0 / f64::from(rows.first().map_or(1, |row| row.key.vms));
    let rows: Vec<&Row> = of(documents, "gangs-escape").collect();
    let others = rows.iter().filter(|row| {
        row.key.arm != row.key.baseline && row.key.vm_index.is_some_and(|index| index > 0)
    });
    others
        .map(|row| {
            let what = format!(
                "CPU time of VM {} beside one that leaves its CPUs all the time, arm {}",
                row.key.vm_index.unwrap_or_default() + 1,
                row.key.arm
            );
            let cpu = row.share.and_then(|share| share.cpu);
            Check::at_least("escape", what, cpu, ESCAPE * due(&rows))
        })
        .collect()
}

fn billing(documents: &[Document]) -> Vec<Check> {
    let mut checks = Vec::new();
    let rows: Vec<&Row> = of(documents, "gangs-quota").collect();
    for row in &rows {
        let Some(index) = row.key.vm_index.filter(|_| row.key.arm != row.key.baseline) else {
            continue;
        };
        let cpu = |row: &Row| row.share.and_then(|share| share.cpu);
        let stock = rows.iter().find(|other| {
            other.key.arm == other.key.baseline
                && other.key.vm_index == Some(index)
                && other.key.profile == row.key.profile
        });
        let stock = stock.and_then(|row| cpu(row));
        let what =
            |of: &str| format!("CPU time of the VM {of}, {}, arm {}", row.key.profile, row.key.arm);
        // The VM with the quota gets no more than its quota, and the other VM at least as much as
        // under stock KVM.
        match stock {
            Some(before) if before <= QUOTA + BILLING => checks.push(Check::at_most(
                "billing",
                what("under a quota"),
                cpu(row),
                QUOTA + BILLING,
                "of the host",
            )),
            Some(before) => checks.push(Check::at_least(
                "billing",
                what("beside it"),
                cpu(row),
                before * (1.0 - BILLING),
            )),
            None => checks.push(Check::at_most("billing", what("under a quota"), None, QUOTA, "")),
        }
    }
    checks
}

pub fn verdict(checks: &[Check]) -> &'static str {
    if checks.iter().any(|check| check.met == Some(false)) {
        "failed"
    } else if checks.is_empty() || checks.iter().any(|check| check.met.is_none()) {
        "incomplete"
    } else {
        "passed"
    }
}

/// A text for people.
pub fn text(gains: &[Gain], checks: &[Check], verdict: &str) -> String {
    let mut text = format!("{verdict}\n\nWork, stock KVM = 1:\n");
    let number = |x: Option<f64>| x.map_or("?".into(), |x| format!("{x:.2}"));
    for gain in gains {
        text += &format!(
            "  {:<12} {:<10} {} (95 %: {} to {}), spins in the {}\n",
            gain.program,
            gain.arm,
            number(gain.work),
            number(gain.low),
            number(gain.high),
            if gain.spins_in == "user" { "program" } else { "kernel" },
        );
    }
    text += "\nNobody may lose:\n";
    for check in checks {
        let met = match check.met {
            Some(true) => "ok",
            Some(false) => "FAILED",
            None => "not measured",
        };
        text += &format!(
            "  {met:<12} {}: {}: {} (bound {:.2} {})\n",
            check.check,
            check.what,
            number(check.value),
            check.bound,
            check.unit
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(met: Option<bool>) -> Check {
        Check { met, ..Check::at_most("victim", String::new(), Some(1.0), 1.1, "x") }
    }

    #[test]
    fn one_failure_decides_and_what_is_unknown_is_no_success() {
        assert_eq!(verdict(&[check(Some(true)), check(Some(true))]), "passed");
        assert_eq!(verdict(&[check(None), check(Some(false))]), "failed");
        assert_eq!(verdict(&[check(Some(true)), check(None)]), "incomplete");
        assert_eq!(verdict(&[]), "incomplete");
    }

    #[test]
    fn bounds_belong_to_what_is_met() {
        let at_most = |v| Check::at_most("victim", String::new(), v, 1.1, "x").met;
        assert_eq!(
            [at_most(Some(1.1)), at_most(Some(1.2)), at_most(None)],
            [Some(true), Some(false), None]
        );
        let at_least = |v| Check::at_least("escape", String::new(), v, 0.3).met;
        assert_eq!([at_least(Some(0.3)), at_least(Some(0.2))], [Some(true), Some(false)]);
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let checks = checks(&[]);
        assert_eq!(verdict(&checks), "incomplete");
        assert!(text(&[], &checks, "incomplete").contains("not measured"), "{checks:?}");
    }
}
