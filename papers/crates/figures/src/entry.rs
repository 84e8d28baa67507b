// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reproduced entry: our values, the paper's values, and the data of its picture.

use crate::claim::{Claim, Kind};
use crate::row::{ends, judge, Row, NO_EVIDENCE};
use crate::within::{Measure, Rule, Span};
use serde_json::{json, Value};
use unspin_report::{plot_svg, Plot};

pub use unspin_report::PlotSeries as Series;

/// Prefix of the names of rows for conditions.
pub(crate) const CONDITION: &str = "condition";

/// One entry. The claim has the paper's values by name. Values without an entered result are
/// missing, and count against the entry.
#[derive(Debug)]
pub struct Entry {
    pub claim: Claim,
    /// Whether there is an experiment for it.
    pub reproduced: bool,
    pub rows: Vec<Row>,
    /// Values that describe the setup of the experiment, not its result.
    pub settings: Vec<String>,
    pub plot: Plot,
    /// Notes for readers, such as how little depends on a chosen parameter.
    pub notes: Vec<String>,
    seed: u64,
}

impl Entry {
    /// An empty entry. `seed`: the first of its runs.
    pub fn new(claim: &Claim, seed: u64) -> Entry {
        let title = format!("{} ({}, {})", claim.id, claim.paper, claim.section);
        Entry {
            claim: claim.clone(),
            reproduced: false,
            rows: Vec::new(),
            settings: Vec::new(),
            plot: Plot { title, ..Plot::default() },
            notes: Vec::new(),
            seed,
        }
    }

    fn row(
        &mut self,
        name: &str,
        measure: Measure,
        ours: Value,
        reference: Option<f64>,
    ) -> &mut Row {
        let again = self.rows.iter().any(|r| r.name == name);
        assert!(!again, "{}: {name} was entered before", self.claim.id);
        let (value, _) = name.split_once(": ").unwrap_or((name, ""));
        let paper = self.printed(name);
        let allowed = match measure {
            Measure::Holds | Measure::Missing => None,
            _ => self.claim.span(value).or(Span::by_rule(measure, &paper, reference)).map(ends),
        };
        let j = judge(&ours, &paper, reference, allowed);
        self.rows.push(Row {
            entry: self.claim.id.clone(),
            name: name.to_string(),
            kind: self.claim.kind,
            measure,
            paper,
            ours,
            reference,
            allowed,
            within: j.within,
            direction_right: j.direction_right,
            evidence: String::new(),
            seed: self.seed,
        });
        self.rows.last_mut().expect("pushed above")
    }

    /// The paper's value, a part of it (`name: part`) or a condition.
    fn printed(&self, name: &str) -> Value {
        let (value, part) = name.split_once(": ").unwrap_or((name, ""));
        if value == CONDITION {
            return json!(part);
        }
        let known = self.claim.names().join(", ");
        let paper = self.claim.get(value).cloned();
        paper.unwrap_or_else(|| panic!("{} has {known}, no {value}", self.claim.id))
    }

    /// The rule of a statement: clause number `clause` of its `within` in the claim, or else
    /// `usual`.
    pub fn rule(&self, name: &str, clause: usize, usual: Rule) -> Rule {
        let said = self.claim.rules(name);
        match said.is_empty() {
            true => usual,
            false => *said.get(clause).unwrap_or_else(|| {
                panic!("{}: within of {name} has no clause {clause}", self.claim.id)
            }),
        }
    }

    /// Enters a performance relative to a baseline (1.34: 34 % more).
    pub fn performance(&mut self, name: &str, ours: f64) {
        self.row(name, Measure::Points, number(ours), Some(1.0));
    }

    /// Enters a gain, loss or cut as a fraction (0.34: 34 % more).
    pub fn gain(&mut self, name: &str, ours: f64) {
        self.row(name, Measure::Points, number(ours), Some(0.0));
    }

    /// Enters a share of a whole, which has no direction.
    pub fn share(&mut self, name: &str, ours: f64) {
        self.row(name, Measure::Points, number(ours), None);
    }

    /// Enters a ratio, or a time as a ratio. Its directions are above and below 1.
    pub fn ratio(&mut self, name: &str, ours: f64) {
        self.row(name, Measure::Ratio, number(ours), Some(1.0));
    }

    /// Enters a count or quantity. `reference`: the baseline's value, if any; the directions are
    /// above and below it.
    pub fn count(&mut self, name: &str, ours: f64, reference: Option<f64>) {
        self.row(name, Measure::Ratio, number(ours), reference);
    }

    /// Enters a value for which the paper's is the largest.
    pub fn at_most(&mut self, name: &str, ours: f64) {
        self.row(name, Measure::AtMost, number(ours), None);
    }

    /// Enters a value for which the paper has a range.
    pub fn between(&mut self, name: &str, ours: f64) {
        self.row(name, Measure::Between, number(ours), None);
    }

    /// Enters a statement, and the evidence for it.
    pub fn holds(&mut self, name: &str, holds: bool, evidence: impl Into<String>) {
        self.row(name, Measure::Holds, json!(holds), None).evidence = evidence.into();
    }

    /// Enters one of several parts of a statement, whose row is named `name: part`.
    pub fn part_holds(&mut self, name: &str, part: &str, holds: bool, evidence: impl Into<String>) {
        self.holds(&format!("{name}: {part}"), holds, evidence);
    }

    /// Marks the value entered last: it agrees, but it would agree with any policy, for this reason.
    /// A value that does not agree is evidence.
    pub fn no_evidence(&mut self, why: impl AsRef<str>) {
        let row = self.rows.last_mut().expect("a value was entered");
        if row.within {
            let evidence = std::mem::take(&mut row.evidence);
            let rest = if evidence.is_empty() { evidence } else { format!(" ({evidence})") };
            row.evidence = format!("{NO_EVIDENCE}: {}{rest}", why.as_ref());
        }
    }

    /// Enters an order or a direction that the claim's condition names, besides its values.
    pub fn condition(&mut self, said: &str, holds: bool, evidence: impl Into<String>) {
        self.part_holds(CONDITION, said, holds, evidence);
    }

    /// Enters a value that describes the set-up of the experiment.
    pub fn setting(&mut self, name: &str) {
        assert!(self.claim.get(name).is_some(), "{} has no {name}", self.claim.id);
        self.settings.push(name.to_string());
    }

    /// Names of the picture's axes.
    pub fn axes(&mut self, x: &str, y: &str) {
        self.plot.x = x.to_string();
        self.plot.y = y.to_string();
    }

    /// One line or one colour of bars.
    pub fn series<X: ToString>(&mut self, name: &str, points: impl IntoIterator<Item = (X, f64)>) {
        let points = points.into_iter().map(|(x, y)| (x.to_string(), y)).collect();
        self.plot.series.push(Series { name: name.to_string(), points });
    }

    /// Adds a sentence to the page.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Marks values without a result as missing. Draws the others if no series was given.
    pub(crate) fn finish(&mut self, reproduced: bool) {
        self.reproduced = reproduced;
        if self.claim.kind == Kind::Define {
            return;
        }
        for name in self.claim.names() {
            let of = |n: &str| {
                n == name
                    || n.starts_with(&format!("{name}["))
                    || n.starts_with(&format!("{name}: "))
            };
            let elements = self.claim.get(&name).and_then(Value::as_array).map_or(0, Vec::len);
            let entered = self.rows.iter().filter(|r| of(&r.name)).count();
            let by_element =
                self.rows.iter().filter(|r| r.name.starts_with(&format!("{name}["))).count();
            let whole = entered > by_element || self.settings.contains(&name);
            if whole || (by_element > 0 && by_element == elements) {
                continue;
            }
            self.row(&name, Measure::Missing, Value::Null, None);
        }
        if self.plot.series.is_empty() {
            let of = |value: fn(&Row) -> Option<f64>| {
                self.rows.iter().filter_map(|r| Some((r.name.clone(), value(r)?))).collect()
            };
            let series = [("paper", of(|r| r.paper.as_f64())), ("ours", of(|r| r.ours.as_f64()))];
            self.plot.series = series
                .map(|(name, points): (_, Vec<_>)| Series { name: name.to_string(), points })
                .into();
        }
    }

    /// Whether all its values are within tolerance.
    pub fn within(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|r| r.within)
    }

    /// The picture's data and its rows.
    pub fn csv(&self) -> String {
        let mut text = "series,x,y\n".to_string();
        for s in &self.plot.series {
            for (x, y) in &s.points {
                text += &format!("{},{},{y}\n", field(&s.name), field(x));
            }
        }
        text
    }

    /// The picture.
    pub fn svg(&self) -> String {
        plot_svg(&self.plot)
    }
}

/// JSON has no infinity: other values become null.
fn number(x: f64) -> Value {
    serde_json::Number::from_f64(x).map_or(Value::Null, Value::Number)
}

fn field(s: &str) -> String {
    if s.contains([',', '"', '\n']) {
        format!("\"{}\"", s.replace('"', "\"\""))
    } else {
        s.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Claim {
        serde_json::from_value(json!({
            "id": "a", "section": "1", "kind": "predict",
            "within": { "ends": [[1.5, 2.5], [2.0, 4.0]], "best": "beyond 5 %" },
            "value": { "vms": [1, 2], "gain": 0.5, "ends": [2.0, 3.0], "best": "x, then y" }
        }))
        .unwrap()
    }

    #[test]
    fn what_is_not_entered_is_missing() {
        let mut e = Entry::new(&claim(), 1);
        e.finish(false);
        assert_eq!(e.rows.len(), 4);
        assert!(e.rows.iter().all(|r| r.measure == Measure::Missing && !r.within && r.is_honest()));
        assert!(!e.within() && !e.reproduced);
    }

    #[test]
    fn an_entry_is_within_if_all_its_values_are() {
        let mut e = Entry::new(&claim(), 1);
        e.setting("vms");
        e.gain("gain", 0.45);
        e.ratio("ends[0]", 2.0);
        e.part_holds("best", "x", true, "");
        e.part_holds("best", "y", true, "");
        let mut half = Entry::new(&claim(), 1);
        half.rows = e.rows.clone();
        half.settings = e.settings.clone();
        half.finish(true);
        assert_eq!(half.rows.last().unwrap().name, "ends", "one end of two is not the range");
        e.ratio("ends[1]", 3.5);
        e.finish(true);
        assert!(e.within(), "{:?}", e.rows);
        e.rows[1].within = false;
        assert!(!e.within());
    }

    #[test]
    fn a_claims_own_tolerance_is_used_and_else_the_rule() {
        let mut e = Entry::new(&claim(), 1);
        e.ratio("ends[0]", 2.5);
        e.ratio("ends[1]", 4.1);
        e.gain("gain", 0.62);
        let allowed = e.rows.iter().map(|r| r.allowed.unwrap().map(Option::unwrap));
        assert_eq!(allowed.collect::<Vec<_>>(), [[1.5, 2.5], [2.0, 4.0], [0.375, 0.625]]);
        assert_eq!(e.rows.iter().map(|r| r.within).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(e.rule("best", 0, Rule::ORDER), Rule::Beyond(0.05));
        assert_eq!(e.rule("vms", 0, Rule::ORDER), Rule::ORDER);
    }

    #[test]
    fn a_condition_that_does_not_hold_counts_against_the_entry() {
        let mut e = Entry::new(&claim(), 1);
        e.setting("vms");
        e.gain("gain", 0.5);
        e.ratio("ends[0]", 2.0);
        e.ratio("ends[1]", 3.0);
        e.holds("best", true, "");
        e.finish(true);
        assert!(e.within());
        e.condition("x before y", false, "");
        assert!(!e.within() && e.rows.last().unwrap().is_honest());
    }

    #[test]
    fn only_what_agrees_is_no_evidence() {
        let mut e = Entry::new(&claim(), 1);
        e.part_holds("best", "x", true, "1.000");
        e.no_evidence("all tie");
        e.part_holds("best", "y", false, "0.9");
        e.no_evidence("all tie");
        e.gain("gain", 0.5);
        e.no_evidence("a flat curve");
        let said: Vec<&str> = e.rows.iter().map(|r| r.evidence.as_str()).collect();
        assert_eq!(said, ["no evidence: all tie (1.000)", "0.9", "no evidence: a flat curve"]);
    }

    #[test]
    #[should_panic(expected = "a has")]
    fn a_value_the_paper_has_not_is_a_slip() {
        Entry::new(&claim(), 1).gain("gian", 0.5);
    }

    #[test]
    fn names_with_commas_stay_one_field() {
        let mut e = Entry::new(&claim(), 1);
        e.series("a, \"b\"", [(1, 0.5)]);
        assert_eq!(e.csv(), "series,x,y\n\"a, \"\"b\"\"\",1,0.5\n");
    }
}
