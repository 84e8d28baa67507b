// SPDX-License-Identifier: MIT OR Apache-2.0
//! The verdict of a document in one sentence: the best arm, its gain, and the number of seeds.

use crate::show::place::{baseline, count, distinct};
use crate::summary::{Row, Summary};
use unspin_scenario::IDEAL_ARM;

/// The arms at each point, without the baseline.
fn compared(s: &Summary) -> Vec<&Row> {
    let is_arm = |r: &&Row| r.key.arm != r.key.baseline && r.key.arm != IDEAL_ARM;
    let is_one = |r: &&Row| r.key.is_whole() && r.key.same_as.is_none();
    let all = s.arms.iter().filter(is_arm).filter(is_one);
    all.filter(|r| r.perf.performance.is_some_and(|p| p > 0.0)).collect()
}

/// Geometric mean of an arm's ratios.
fn mean(rows: &[&Row]) -> f64 {
    let logs = rows.iter().filter_map(|r| r.perf.performance).map(f64::ln);
    (logs.sum::<f64>() / rows.len().max(1) as f64).exp()
}

/// The sentence.
pub(crate) fn verdict(s: &Summary) -> String {
    let rows = compared(s);
    let base = baseline(s);
    let of = |arm: &&str| {
        let rows: Vec<&Row> = rows.iter().copied().filter(|r| r.key.arm == *arm).collect();
        (arm.to_string(), mean(&rows), rows)
    };
    let arms = distinct(rows.iter().map(|r| r.key.arm.as_str()));
    let best = arms.iter().map(of).max_by(|a, b| a.1.total_cmp(&b.1));
    let made = if s.machine == "sim" { "Simulated, not measured: " } else { "" };
    let missing = if s.provenance.complete { "" } else { " Runs are missing." };
    let Some((arm, ratio, rows)) = best else {
        return format!("{made}no arm can be compared with another.{missing}");
    };
    let told = |verdict: &str| rows.iter().filter(|r| r.perf.verdict == Some(verdict)).count();
    let (better, worse) = (told("better"), told("worse"));
    let seeds = count(s.provenance.seeds.len() as u32, "seed");
    let sure = match (s.provenance.seeds.len(), rows.as_slice()) {
        (0 | 1, _) => format!("from {seeds}, so its spread is unknown"),
        (_, [one]) => {
            let ends = one.perf.performance_low.zip(one.perf.performance_high);
            ends.map_or(format!("over {seeds}"), |(low, high)| {
                format!("{low:.2} to {high:.2} over {seeds}")
            })
        }
        (_, all) => {
            format!("better at {better} of {} points, worse at {worse}, over {seeds}", all.len())
        }
    };
    let by = match rows.len() {
        1 => format!("{ratio:.2} times the throughput of {base}"),
        n => format!("{ratio:.2} times the throughput of {base} (mean of {n} points)"),
    };
    let is_known = s.provenance.seeds.len() < 2 || better > 0;
    match ratio > 1.0 && is_known {
        true => format!("{made}{arm} did best: {by}; {sure}.{missing}"),
        false => format!(
            "{made}no arm did measurably better than {base}; the best was {arm}: {by}; {sure}.{missing}"
        ),
    }
}
