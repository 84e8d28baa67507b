// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the predictions came to by the targets before these, so that nobody takes a target that was
//! mended for a better model.

use crate::claim::{Claims, Kind};
use crate::summary::{EntrySummary, Summary};
use crate::text::share;
use std::fmt::Write;

/// A paper, and of its predicted entries those within tolerance and those with the right direction: by
/// the targets of commit d0d63b5, and by these, of the same simulator (`unspin figures` of d0d63b5 and
/// of the commit after it that brought these targets).
const SAME_SIMULATOR: [(&str, [u32; 2], [u32; 2]); 5] = [
    ("apples", [3, 4], [3, 4]),
    ("pmtlock", [0, 3], [0, 1]),
    ("oticket", [4, 5], [2, 3]),
    ("asman", [1, 4], [1, 4]),
    ("dissertation", [3, 7], [1, 6]),
];

/// The table; nothing where not all is made.
pub fn table(claims: &Claims, summary: &Summary) -> String {
    let all: Vec<&EntrySummary> =
        summary.entries.iter().filter(|e| e.kind == Kind::Predict).collect();
    let predicted = claims.all.iter().filter(|c| c.kind == Kind::Predict).count();
    if all.len() != predicted {
        return String::new();
    }
    let mut text = "\nTargets were mended once: their tolerances, what some values are compared \
                    with, and orders that count. The same simulator, judged by both, and what it \
                    comes to here:\n\n\
                    | paper | predicted | former targets, simulator of d0d63b5: within tolerance | \
                    direction right | these targets, same simulator: within tolerance | direction \
                    right | these targets, this simulator: within tolerance | direction right |\n\
                    |---|---|---|---|---|---|---|---|\n"
        .to_string();
    let mut line = |name: &str, before: [u32; 4], entries: &[&EntrySummary]| {
        let count = |is: fn(&EntrySummary) -> bool| entries.iter().filter(|e| is(e)).count() as u32;
        let now = [count(|e| e.within), count(|e| e.direction_right)];
        let of = entries.len() as u32;
        let cells = before.iter().chain(&now).map(|n| format!("{n}{}", share(*n, of)));
        let _ = writeln!(text, "| {name} | {of} | {} |", cells.collect::<Vec<_>>().join(" | "));
    };
    let mut sum = [0; 4];
    for (paper, former, these) in SAME_SIMULATOR {
        let before = [former[0], former[1], these[0], these[1]];
        sum = [0, 1, 2, 3].map(|i: usize| sum[i] + before[i]);
        let of = |e: &&&EntrySummary| claims.of(paper).any(|c| c.id == e.id);
        line(paper, before, &all.iter().filter(of).copied().collect::<Vec<_>>());
    }
    line("all", sum, &all);
    text
}
