// SPDX-License-Identifier: MIT OR Apache-2.0
//! reproduction.md: every value of the papers with ours, and the reasons for misses.

use crate::claim::{Claim, Claims, Kind};
use crate::reasons::Reasons;
use crate::row::Row;
use crate::summary::{EntrySummary, Summary};
use crate::text::{anchor, cell, closed, figure, share, show};
use crate::within::Measure;
use std::fmt::Write;

/// The page in Markdown: a summary; then for each paper its entries, their values, and the reasons
/// for misses.
pub fn page(claims: &Claims, summary: &Summary, reasons: &Reasons) -> String {
    let mut text = head();
    text += &totals(claims, summary);
    for (paper, place) in &claims.papers {
        let entries = entries_of(claims, summary, paper);
        if entries.is_empty() {
            continue;
        }
        text += &format!("\n## {}\n\n", title(paper, place));
        text += &contents(summary, &entries);
        for (entry, claim) in &entries {
            text += &section(summary, entry, claim, reasons);
        }
        text += &whys(summary, &entries, paper, reasons);
    }
    definitions(&mut text, claims);
    text
}

fn head() -> String {
    "# The papers' figures on the simulator\n\n\
     How well machine `sim` predicts what a policy does: every value that the papers print, beside \
     the simulator's. `unspin-lab figures` makes this page. The simulator's values are predictions of a \
     model, not measurements.\n\n\
     An entry is one figure, table or passage. An entry of kind *predict* is a result of the paper's \
     system, and nothing was fitted to it. An entry of kind *calibrate* is a result of the paper's \
     baseline, and profiles may have been fitted to it (docs/calibration.md). papers/README.md has the \
     tolerances. An entry is within tolerance if all its values are, and if the orders that its condition \
     names hold. A direction is right if the simulator's value is within tolerance, or shows an \
     effect of more than 2 % in the paper's direction. *No evidence* marks values that agree and would \
     agree with any policy. An entry within tolerance counts as *with evidence* if at least one of its \
     values is not marked *no evidence*.\n\n\
     A prediction is *blind* if its value was unknown when the programs it uses were chosen. Each other \
     prediction says how its value was known.\n\n"
        .to_string()
}

type Made<'a> = (&'a EntrySummary, &'a Claim);

fn entries_of<'a>(claims: &'a Claims, summary: &'a Summary, paper: &str) -> Vec<Made<'a>> {
    let of = |id: &str| claims.all.iter().find(|c| c.id == id && c.paper == paper);
    summary.entries.iter().filter_map(|e| Some((e, of(&e.id)?))).collect()
}

fn title(paper: &str, place: &str) -> String {
    format!("{paper} ({place})")
}

/// The number of entries that agree, per paper and in all.
fn totals(claims: &Claims, summary: &Summary) -> String {
    let mut text =
        "| paper | predicted | within tolerance | with evidence | direction right | blind \
                    | blind, within tolerance | blind, direction right | calibrated \
                    | calibrated, within tolerance |\n\
                    |---|---|---|---|---|---|---|---|---|---|\n"
            .to_string();
    for (paper, place) in &claims.papers {
        let entries = entries_of(claims, summary, paper);
        let entries: Vec<&EntrySummary> = entries.iter().map(|(e, _)| *e).collect();
        if !entries.is_empty() {
            let title = title(paper, place);
            text += &total(&format!("[{title}](#{})", anchor(&title)), summary, &entries);
        }
    }
    text + &total("all", summary, &summary.entries.iter().collect::<Vec<_>>())
}

fn total(name: &str, summary: &Summary, entries: &[&EntrySummary]) -> String {
    let count = |of: &dyn Fn(&EntrySummary) -> bool| {
        let n = entries.iter().filter(|e| of(e)).count() as u32;
        let within = entries.iter().filter(|e| of(e) && e.within).count() as u32;
        let right = entries.iter().filter(|e| of(e) && e.direction_right).count() as u32;
        (n, format!("{within}{}", share(within, n)), format!("{right}{}", share(right, n)))
    };
    let (predicted, within, right) = count(&|e| e.kind == Kind::Predict);
    let (blind, blind_within, blind_right) = count(&|e| e.kind == Kind::Predict && !e.seen);
    let (calibrated, fitted, _) = count(&|e| e.kind == Kind::Calibrate);
    let shows = |e: &&&EntrySummary| {
        e.kind == Kind::Predict && e.within && rows_of(summary, e).any(Row::is_evidence)
    };
    let evident = entries.iter().filter(shows).count() as u32;
    let evident = format!("{evident}{}", share(evident, predicted));
    format!(
        "| {name} | {predicted} | {within} | {evident} | {right} | {blind} | {blind_within} | {blind_right} | \
         {calibrated} | {fitted} |\n"
    )
}

/// A paper's entries, one line each.
fn contents(summary: &Summary, entries: &[Made]) -> String {
    let mut text = "| entry | section | kind | blind | values within | directions right | |\n\
                    |---|---|---|---|---|---|---|\n"
        .to_string();
    for (entry, claim) in entries {
        let rows = || rows_of(summary, entry);
        let count = |is: fn(&Row) -> bool| rows().filter(|r| is(r)).count();
        let _ = writeln!(
            text,
            "| [{}](#{}) | {} | {} | {} | {} of {} | {} | {} |",
            entry.id,
            anchor(&entry.id),
            claim.section,
            entry.kind.name(),
            blind(entry),
            count(|r| r.within),
            rows().count(),
            count(|r| r.direction_right),
            verdict(entry)
        );
    }
    text
}

fn blind(entry: &EntrySummary) -> &'static str {
    match (entry.kind, entry.seen) {
        (Kind::Predict, false) => "yes",
        (Kind::Predict, true) => "no",
        _ => "",
    }
}

fn verdict(entry: &EntrySummary) -> &'static str {
    match (entry.reproduced, entry.within, entry.direction_right) {
        (false, ..) => "no experiment yet",
        (true, true, true) => "agrees",
        (true, true, false) => "agrees, but a direction is wrong",
        (true, false, true) => "differs, direction right",
        (true, false, false) => "differs",
    }
}

fn rows_of<'a>(summary: &'a Summary, entry: &'a EntrySummary) -> impl Iterator<Item = &'a Row> {
    summary.rows.iter().filter(|r| r.entry == entry.id)
}

fn section(summary: &Summary, entry: &EntrySummary, claim: &Claim, reasons: &Reasons) -> String {
    let mut text = format!(
        "\n### {}\n\nSection {}, {}: {}.\n",
        entry.id,
        claim.section,
        entry.kind.name(),
        verdict(entry)
    );
    let said = [("What is compared", &claim.condition), ("Not blind", &claim.seen)];
    for (what, said) in said.into_iter().filter(|(_, said)| !said.is_empty()) {
        text += &format!("\n{what}: {}\n", closed(said));
    }
    for note in &entry.notes {
        text += &format!("\n{note}\n");
    }
    text += "\n| value | paper | agrees | ours | within | direction | |\n\
             |---|---|---|---|---|---|---|\n";
    rows_of(summary, entry).for_each(|row| line(&mut text, row, claim, reasons));
    text
}

fn line(text: &mut String, row: &Row, claim: &Claim, reasons: &Reasons) {
    let nothing = (row.measure == Measure::Missing).then(|| "not reproduced".to_string());
    let evidence = Some(row.evidence.clone()).filter(|e| !e.is_empty());
    let why = row.misses().then(|| match heading(row, reasons) {
        Some(heading) => format!("[why](#{})", anchor(&heading)),
        None => "why is not known".to_string(),
    });
    let said: Vec<String> = [nothing, evidence, why].into_iter().flatten().collect();
    let bound = match row.measure {
        Measure::AtMost => "at most ",
        Measure::Between => "between ",
        _ => "",
    };
    let _ = writeln!(
        text,
        "| {} | {bound}{} | {} | {} | {} | {} | {} |",
        row.name,
        cell(&show(&row.paper)),
        cell(&agrees(row, claim)),
        show(&row.ours),
        if row.within { "yes" } else { "**no**" },
        if row.direction_right { "right" } else { "**wrong**" },
        cell(&said.join(". "))
    );
}

/// The range in which ours agrees, or the claim's rule for a statement.
fn agrees(row: &Row, claim: &Claim) -> String {
    let (name, _) = row.name.split_once(": ").unwrap_or((&row.name, ""));
    match row.allowed {
        Some([Some(low), Some(high)]) => format!("{} to {}", figure(low), figure(high)),
        Some([None, Some(high)]) => format!("up to {}", figure(high)),
        Some([Some(low), None]) => format!("from {}", figure(low)),
        Some([None, None]) => "any".to_string(),
        None => claim.statement(name).unwrap_or_default().to_string(),
    }
}

/// The heading of the reason for a value: the value's own, or its entry's.
fn heading(row: &Row, reasons: &Reasons) -> Option<String> {
    if reasons.of_value(row).is_some() {
        return Some(format!("Why {}, {}", row.entry, row.name));
    }
    reasons.of_entry(&row.entry).map(|_| format!("Why {}", row.entry))
}

/// Each reason that a value of the paper refers to, once.
fn whys(summary: &Summary, entries: &[Made], paper: &str, reasons: &Reasons) -> String {
    let mut said: Vec<(String, &str)> = Vec::new();
    for (entry, _) in entries {
        for row in rows_of(summary, entry).filter(|r| r.misses()) {
            let why = reasons.of_value(row).or(reasons.of_entry(&row.entry));
            if let Some((heading, why)) = heading(row, reasons).zip(why) {
                if !said.iter().any(|(known, _)| *known == heading) {
                    said.push((heading, why));
                }
            }
        }
    }
    if said.is_empty() {
        return String::new();
    }
    let mut text = format!("\n### Why values of {paper} miss\n");
    for (heading, why) in said {
        text += &format!("\n#### {heading}\n\n{}\n", sentence(why));
    }
    text
}

/// The text as a sentence, with a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    closed(&format!("{first}{}", letters.as_str()))
}

fn definitions(text: &mut String, claims: &Claims) {
    let _ = write!(
        text,
        "\n## Definitions\n\nParameters, rules and set-ups; they give nothing to compare.\n\n\
         | entry | section | what |\n|---|---|---|\n"
    );
    for c in claims.all.iter().filter(|c| c.kind == Kind::Define) {
        let what = match &c.value {
            serde_json::Value::String(s) => s.clone(),
            value => value.to_string(),
        };
        let _ = writeln!(text, "| {} | {} | {} |", c.id, c.section, cell(&what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Entry;

    fn claims() -> Claims {
        let claim = |id: &str, kind: &str, seen: &str| {
            serde_json::from_value(serde_json::json!({
                "id": id, "section": "1", "kind": kind, "seen": seen, "value": { "x": { "y": 1.5 }, "best": "a" }
            }))
            .unwrap()
        };
        let of = |paper, claim| Claim { paper, ..claim };
        Claims {
            papers: vec![("p", "P 2000".to_string()), ("q", "Q 2001".to_string())],
            all: vec![
                of("p", claim("p_fig1", "predict", "")),
                of("q", claim("q_fig1", "predict", "it was shown")),
                of("q", claim("q_fig2", "calibrate", "")),
            ],
        }
    }

    /// `p_fig1` misses both values, `q_fig1` one of them and `q_fig2` none.
    fn summary(claims: &Claims) -> Summary {
        let values = [(9.0, false), (1.5, false), (1.5, true)];
        let made = claims.all.iter().zip(values).map(|(claim, (x, holds))| {
            let mut e = Entry::new(claim, 1);
            e.ratio("x.y", x);
            e.holds("best", holds, "seen | so");
            e.finish(true);
            e
        });
        Summary::new(&made.collect::<Vec<_>>(), "1", &[], None)
    }

    fn links(text: &str) -> Vec<&str> {
        text.split("](#").skip(1).filter_map(|rest| rest.split(')').next()).collect()
    }

    #[test]
    fn the_summary_stands_before_the_values() {
        let claims = claims();
        let text = page(&claims, &summary(&claims), &Reasons::default());
        let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}:\n{text}"));
        let p = at(
            "| [p (P 2000)](#p-p-2000) | 1 | 0 (0 %) | 0 (0 %) | 0 (0 %) | 1 | 0 (0 %) | 0 (0 %) | 0 | 0 |",
        );
        let q =
            at("| [q (Q 2001)](#q-q-2001) | 1 | 0 (0 %) | 0 (0 %) | 0 (0 %) | 0 | 0 | 0 | 1 | 1 (100 %) |");
        let all =
            at("| all | 2 | 0 (0 %) | 0 (0 %) | 0 (0 %) | 1 | 0 (0 %) | 0 (0 %) | 1 | 1 (100 %) |");
        assert!(p < q && q < all && all < at("\n## p (P 2000)\n"));
        at("| [q_fig1](#q_fig1) | 1 | predict | no | 1 of 2 | 1 | differs |");
        at("| [q_fig2](#q_fig2) | 1 | calibrate |  | 2 of 2 | 2 | agrees |");
        at("| x.y | 1.5 | 1.125 to 1.875 | 9 | **no** | right | why is not known |");
        at("\nNot blind: it was shown.\n");
        at("| best | a |  | holds | yes | right | seen \\| so |");
    }

    /// An entry counts as evidence as long as one of its values is.
    #[test]
    fn an_entry_whose_values_cannot_miss_is_no_evidence() {
        let claims = claims();
        let text = |marked: usize| {
            let mut e = Entry::new(&claims.all[0], 1);
            for n in 0..2 {
                match n {
                    0 => e.ratio("x.y", 1.5),
                    _ => e.holds("best", true, "1.000"),
                }
                if n < marked {
                    e.no_evidence("all tie");
                }
            }
            e.finish(true);
            page(&claims, &Summary::new(&[e], "1", &[], None), &Reasons::default())
        };
        for (marked, evident) in [(0, "1 (100 %)"), (1, "1 (100 %)"), (2, "0 (0 %)")] {
            let line = format!("| all | 1 | 1 (100 %) | {evident} | 1 (100 %) |");
            assert!(text(marked).contains(&line), "{marked} marked:\n{}", text(marked));
        }
    }

    #[test]
    fn reasons_are_sections_that_values_lead_to() {
        let claims = claims();
        let reasons = [
            ("p_fig1", "locks | are short"),
            ("p_fig1 x.y", "it is rounded"),
            ("q_fig2", "nothing misses"),
        ];
        let text = page(&claims, &summary(&claims), &Reasons::of(&reasons));
        let headings: Vec<String> = (text.lines().filter(|l| l.starts_with('#')))
            .map(|l| anchor(l.trim_start_matches('#').trim()))
            .collect();
        for link in links(&text) {
            let to = headings.iter().filter(|h| *h == link).count();
            assert_eq!(to, 1, "{link} in {headings:?}");
        }
        let values: Vec<&str> = text.lines().filter(|l| l.ends_with("(#why-p_fig1) |")).collect();
        assert_eq!(values.len(), 1, "{text}");
        assert!(text.contains("| [why](#why-p_fig1-xy) |"), "{text}");
        assert!(text.contains("\n#### Why p_fig1\n\nLocks | are short.\n"), "{text}");
        assert!(text.contains("\n#### Why p_fig1, x.y\n\nIt is rounded.\n"), "{text}");
        assert!(!text.contains("nothing misses") && !text.contains("Why values of q"), "{text}");
        // Tables must contain only links.
        let cells = text.lines().filter(|l| l.starts_with('|'));
        assert!(!cells.clone().any(|l| l.contains("rounded") || l.contains("are short")));
    }
}
