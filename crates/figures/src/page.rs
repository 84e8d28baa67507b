// SPDX-License-Identifier: MIT OR Apache-2.0
//! docs/reproduction.md: every value of the papers, ours beside it, and why it misses.

use crate::claim::{Claims, Kind};
use crate::reasons::Reasons;
use crate::row::{Measure, Row, PART, POINTS};
use crate::summary::Summary;
use serde_json::Value;
use std::fmt::Write;

/// The page in Markdown.
pub fn page(claims: &Claims, summary: &Summary, reasons: &Reasons) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "# The papers' figures on the simulator\n\n\
         Made by `unspin figures`, machine `sim`: predictions of a model, no measurements. Values \
         of kind *calibrate* are what a paper's baseline did, and profiles may have been fitted to \
         them ([calibration.md](calibration.md)); those of kind *predict* are what its system did, \
         and nothing was fitted to them.\n\n\
         Gains and shares agree within {:.0} points, ratios and counts within {:.0} %; bounds, \
         ranges and statements hold or do not. An entry agrees if all its values do.\n\n\
         | predicted | within tolerance | direction right |\n|---|---|---|\n| {} | {}{} | {}{} |\n",
        100.0 * POINTS,
        100.0 * PART,
        summary.predicted,
        summary.within,
        share(summary.within, summary.predicted),
        summary.direction_right,
        share(summary.direction_right, summary.predicted),
    );
    for (paper, place) in &claims.papers {
        let of = |id: &str| claims.of(paper).find(|c| c.id == id);
        let entries: Vec<_> =
            summary.entries.iter().filter_map(|e| Some((e, of(&e.id)?))).collect();
        if entries.is_empty() {
            continue;
        }
        let _ = write!(text, "\n## {paper} ({place})\n");
        for (entry, claim) in entries {
            let _ = write!(
                text,
                "\n### {} ({}, {})\n",
                entry.id,
                claim.section,
                match (entry.kind, entry.reproduced, entry.within) {
                    (kind, false, _) => format!("{}: no experiment yet", kind.name()),
                    (kind, true, true) => format!("{}: agrees", kind.name()),
                    (kind, true, false) => format!("{}: differs", kind.name()),
                }
            );
            for note in &entry.notes {
                let _ = write!(text, "\n{note}\n");
            }
            let _ = write!(
                text,
                "\n| value | paper | ours | within | direction | |\n|---|---|---|---|---|---|\n"
            );
            let rows = || summary.rows.iter().filter(|r| r.entry == entry.id);
            rows().for_each(|row| line(&mut text, row, reasons));
            // Once for all that have none of their own.
            if rows().any(|r| r.misses() && reasons.of_value(r).is_none()) {
                let why = reasons.of_entry(&entry.id).unwrap_or("not known");
                let differs = rows().any(|r| !r.within);
                let what = if differs { "it differs" } else { "a direction is wrong" };
                let _ = write!(text, "\nWhy {what}: {why}.\n");
            }
        }
    }
    definitions(&mut text, claims);
    text
}

fn share(n: u32, of: u32) -> String {
    match of {
        0 => String::new(),
        _ => format!(" ({:.0} %)", 100.0 * f64::from(n) / f64::from(of)),
    }
}

fn line(text: &mut String, row: &Row, reasons: &Reasons) {
    let own = reasons.of_value(row).filter(|_| row.misses());
    let nothing = (row.measure == Measure::Missing).then_some("not reproduced");
    let said = [nothing, Some(&*row.evidence).filter(|e| !e.is_empty()), own];
    let why = said.into_iter().flatten().collect::<Vec<_>>().join(". ");
    let bound = match row.measure {
        Measure::AtMost => "at most ",
        Measure::AtLeast => "at least ",
        Measure::Between => "between ",
        _ => "",
    };
    let _ = writeln!(
        text,
        "| {} | {bound}{} | {} | {} | {} | {} |",
        row.name,
        cell(&show(&row.paper)),
        show(&row.ours),
        if row.within { "yes" } else { "**no**" },
        if row.direction_right { "right" } else { "**wrong**" },
        cell(&why)
    );
}

fn cell(s: &str) -> String {
    s.replace('|', "\\|").replace('\n', " ")
}

fn show(v: &Value) -> String {
    match v {
        Value::Null => "-".to_string(),
        Value::String(s) => s.clone(),
        Value::Bool(b) => if *b { "holds" } else { "does not hold" }.to_string(),
        Value::Array(all) => all.iter().map(show).collect::<Vec<_>>().join(" and "),
        Value::Number(n) => match n.as_f64() {
            Some(x) if n.is_f64() => figure(x),
            _ => n.to_string(),
        },
        Value::Object(_) => v.to_string(),
    }
}

/// Three significant digits or the whole number, as papers print them.
fn figure(x: f64) -> String {
    match x.abs() {
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        _ => {
            let text = format!("{x:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
    }
}

fn definitions(text: &mut String, claims: &Claims) {
    let _ = write!(
        text,
        "\n## Definitions\n\nParameters, rules and set-ups; they give nothing to compare.\n\n\
         | entry | section | what |\n|---|---|---|\n"
    );
    for c in claims.all.iter().filter(|c| c.kind == Kind::Define) {
        let what = match &c.value {
            Value::String(s) => s.clone(),
            value => value.to_string(),
        };
        let _ = writeln!(text, "| {} | {} | {} |", c.id, c.section, cell(&what));
    }
}
