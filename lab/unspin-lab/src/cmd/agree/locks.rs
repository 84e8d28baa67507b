// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks on machines `threads` and `sim`: how well the two agree on their order.

use super::row::{rows, Key, Pair, Row};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Two locks differ if one is faster than the other by at least this factor.
const TOLD_APART: f64 = 1.10;

/// The number of pairs of locks of one point that differ on both machines, and the number of these
/// pairs that both order alike.
fn lock_order(rows: &[&Row]) -> (usize, usize) {
    let (mut told, mut alike) = (0, 0);
    for (i, a) in rows.iter().enumerate() {
        for b in &rows[i + 1..] {
            let factor = |of: fn(&Row) -> f64| (of(a) / of(b)).ln() / TOLD_APART.ln();
            let (measured, simulated) = (factor(|r| r.performance.0), factor(|r| r.performance.1));
            if measured.abs() >= 1.0 && simulated.abs() >= 1.0 {
                told += 1;
                alike += usize::from(measured.signum() == simulated.signum());
            }
        }
    }
    (told, alike)
}

/// Ranks, 1 for the largest. Equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let above = |x: f64| values.iter().filter(|y| **y > x).count() as f64;
    let equal = |x: f64| values.iter().filter(|y| **y == x).count() as f64;
    values.iter().map(|x| above(*x) + (equal(*x) + 1.0) / 2.0).collect()
}

/// Spearman's rank correlation; `None` for fewer than two rows, or if all are equal.
fn rank_correlation(rows: &[&Row]) -> Option<f64> {
    let of = |f: fn(&Row) -> f64| ranks(&rows.iter().map(|r| f(r)).collect::<Vec<_>>());
    let (a, b) = (of(|r| r.performance.0), of(|r| r.performance.1));
    let mean = (rows.len() as f64 + 1.0) / 2.0;
    let sum = |x: &[f64], y: &[f64]| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum()
    };
    let spread = (sum(&a, &a) * sum(&b, &b)).sqrt();
    (spread > 0.0).then(|| sum(&a, &b) / spread)
}

/// The section about locks: first how well the two machines agree on the order, then each lock.
pub(super) fn section(pairs: &BTreeMap<Key, Pair>, seeds: u32) -> String {
    let rows = rows(pairs);
    let mut points: BTreeMap<Key, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        points.entry(Key { arm: String::new(), ..row.key.clone() }).or_default().push(row);
    }
    let orders: Vec<(usize, usize)> = points.values().map(|p| lock_order(p)).collect();
    let (told, alike) = orders.iter().fold((0, 0), |(t, a), o| (t + o.0, a + o.1));
    let mut text = String::new();
    let _ = write!(
        text,
        "# Locks: the simulator against machine `threads`\n\n\
         Made by `unspin-lab agree`: every measured lock simulated with {seeds} seeds, medians compared, \
         throughput against the baseline lock of the same machine. Two locks are told apart by a \
         machine where one is faster by {:.0} %: of the {told} pairs of one point that both tell \
         apart, {alike} come in the same order ({:.0} %).\n\n\
         | profile | VMs | vCPUs | rank correlation (Spearman) | pairs told apart | in the same order |\n\
         |---|---|---|---|---|---|\n",
        100.0 * (TOLD_APART - 1.0),
        100.0 * alike as f64 / told.max(1) as f64,
    );
    for ((key, point), (told, alike)) in points.iter().zip(&orders) {
        let rho = rank_correlation(point).map_or("-".to_string(), |rho| format!("{rho:.2}"));
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {rho} | {told} | {alike} |",
            key.profile, key.vms, key.vcpus
        );
    }
    text.push_str(
        "\n| profile | VMs | vCPUs | lock | measured | simulated | rank measured | simulated |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for point in points.values() {
        let of = |f: fn(&Row) -> f64| ranks(&point.iter().map(|r| f(r)).collect::<Vec<_>>());
        let (measured, simulated) = (of(|r| r.performance.0), of(|r| r.performance.1));
        for ((r, a), b) in point.iter().zip(measured).zip(simulated) {
            let (k, p) = (r.key, r.performance);
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} | {:.2} | {:.2} | {a} | {b} |",
                k.profile, k.vms, k.vcpus, k.arm, p.0, p.1
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::{key, pair};
    use super::*;

    #[test]
    fn locks_are_compared_by_their_order() {
        let threads = |arm| Key { threads: true, ..key(arm) };
        let all = |tas: f64| {
            BTreeMap::from([
                (threads("ticket"), pair(100.0, 50.0, true)),
                (threads("mcs"), pair(104.0, 40.0, false)),
                (threads("tas"), pair(900.0, tas, false)),
            ])
        };
        let pairs = all(100.0);
        let rows = rows(&pairs);
        let rows: Vec<&Row> = rows.iter().collect();
        // The measurement does not separate ticket and mcs.
        assert_eq!(lock_order(&rows), (2, 2));
        assert_eq!(rank_correlation(&rows), Some(0.5));
        let text = section(&pairs, 1);
        assert!(text.contains("of the 2 pairs"));
        assert!(text.find("rank correlation") < text.find("rank measured"), "{text}");
        let wrong = all(20.0);
        assert!(section(&wrong, 1).contains("apart, 0 come in the same order (0 %)"));
        assert_eq!(ranks(&[5.0, 9.0, 5.0]), [2.5, 1.0, 2.5]);
    }
}
