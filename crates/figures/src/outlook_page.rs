// SPDX-License-Identifier: MIT OR Apache-2.0
//! What worlds say of the papers' values, for reproduction.md.

use crate::claim::{Claims, Kind};
use crate::outlook::{Outlook, Outlooks, Verdict};
use crate::text::{cell, figure, share, show};
use std::fmt::Write;

/// A section with counts by paper, and every value.
pub fn over_worlds(claims: &Claims, o: &Outlooks) -> String {
    let mut text = format!(
        "\n## Over worlds\n\n\
         What a paper does not print, and what the model does not know of its costs, was drawn anew in \
         each of {} worlds (`unspin-lab figures --worlds {} --seed {}`, version {}; each point once in a \
         world). A value is *covered* if what the paper prints lies in the 90 % band of ours, and \
         *ruled out* if it does not: then the model says something else, whatever it does not know. It is \
         *uninformative* if the band has it and is more than twice as wide as what agrees, or has no \
         effect in it as well. A statement is covered if it holds in 95 % of the worlds, ruled out if in \
         5 %, else uninformative.\n\n",
        o.worlds, o.worlds, o.seed, o.version
    );
    text += &counts(claims, o);
    let drawn = o.inputs.join("`, `");
    let _ = writeln!(text, "\nDrawn: `{drawn}`. Files name the source of each range.");
    if !o.failed.is_empty() {
        let _ = writeln!(text, "\nNot made: {}.", o.failed.join("; "));
    }
    text += "\n| entry | value | paper | 90 % band | worlds | |\n|---|---|---|---|---|---|\n";
    for v in &o.values {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            v.entry,
            v.name,
            cell(&show(&v.paper)),
            band(v),
            v.worlds,
            verdict(v.verdict)
        );
    }
    text
}

fn counts(claims: &Claims, o: &Outlooks) -> String {
    let mut text = "| paper | values | informative | covered | ruled out | uninformative |\n\
                    |---|---|---|---|---|---|\n"
        .to_string();
    let mut line = |name: &str, of: &dyn Fn(&str) -> bool| {
        let count = |v| o.count(v, of) as u32;
        let (covered, out) = (count(Verdict::Covered), count(Verdict::RuledOut));
        let nothing = count(Verdict::Uninformative);
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {covered}{} | {out} | {nothing} |",
            covered + out + nothing,
            covered + out,
            share(covered, covered + out)
        );
    };
    for (paper, _) in &claims.papers {
        line(paper, &|entry| claims.of(paper).any(|c| c.id == entry));
    }
    let blind = |c: &&crate::Claim| c.kind == Kind::Predict && c.seen.is_empty();
    line("blind entries of all", &|entry| claims.all.iter().filter(blind).any(|c| c.id == entry));
    line("all", &|_| true);
    text
}

fn band(v: &Outlook) -> String {
    match v.holds {
        true => format!("holds in {:.0} %", 100.0 * v.band[0]),
        false => format!("{} to {}", figure(v.band[0]), figure(v.band[1])),
    }
}

fn verdict(v: Verdict) -> &'static str {
    match v {
        Verdict::Covered => "covered",
        Verdict::RuledOut => "**ruled out**",
        Verdict::Uninformative => "uninformative",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn informative_are_covered_and_ruled_out() {
        let verdicts =
            [Verdict::Covered, Verdict::Covered, Verdict::RuledOut, Verdict::Uninformative];
        let value = |(i, verdict): (usize, &Verdict)| Outlook {
            entry: "p_a".into(),
            name: format!("x{i}"),
            paper: json!(1.5),
            worlds: 8,
            band: [1.0, 2.0],
            holds: false,
            verdict: *verdict,
        };
        let o = Outlooks {
            version: "1".into(),
            worlds: 8,
            seed: 3,
            inputs: vec!["host.exit_cycles".into()],
            failed: vec!["world 2, p_a: no".into()],
            values: verdicts.iter().enumerate().map(value).collect(),
        };
        let text = over_worlds(&Claims::default(), &o);
        assert!(text.contains("| all | 4 | 3 | 2 (67 %) | 1 | 1 |"), "{text}");
        assert!(text.contains("| p_a | x2 | 1.5 | 1 to 2 | 8 | **ruled out** |"), "{text}");
        assert!(text.contains("Not made: world 2, p_a: no."), "{text}");
    }
}
