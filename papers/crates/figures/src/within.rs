// SPDX-License-Identifier: MIT OR Apache-2.0
//! The allowed difference of our value from a paper's: the claim's `within`, or else the general
//! rule (papers/README.md, "Tolerances").

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use toml::Value;

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// A share of a whole or, with a reference, a change against it: a gain, a loss, a normalised
    /// performance.
    Points,
    /// A ratio, a count, or a time (given as a ratio).
    Ratio,
    /// The paper's value is an upper bound.
    AtMost,
    /// The paper has a range.
    Between,
    /// A statement, which holds or does not.
    Holds,
    /// There is no value to compare.
    Missing,
}

/// Tolerance of a share or level of a whole, or of a change, in points.
const POINTS: f64 = 0.10;
/// Tolerance of a ratio, count or time, as a part of the value; also of a change, as a part of the
/// change, if that is more than [`POINTS`].
const PART: f64 = 0.25;
/// Tolerance of a change of less than [`POINTS`], in points.
const SMALL: f64 = 0.05;
/// An order may be reversed by this much and still counts as a tie; an effect must be larger.
pub const TIE: f64 = 0.02;
/// Tolerance of similar, comparable or equal values.
const SIMILAR: f64 = 0.10;
/// Numbers on a printed end of a range are within it.
const ROUNDING: f64 = 1e-9;

/// The values that agree, from `low` to `high`, both included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    pub low: f64,
    pub high: f64,
}

impl Span {
    /// Whether `x` is in it.
    pub fn has(self, x: f64) -> bool {
        x >= self.low - ROUNDING * self.low.abs().max(1.0)
            && x <= self.high + ROUNDING * self.high.abs().max(1.0)
    }

    /// The tolerance by the general rule. `reference` is the value of "no effect". `None` if the
    /// paper's value is not a number or, for a range, not a pair of numbers.
    pub fn by_rule(measure: Measure, paper: &Json, reference: Option<f64>) -> Option<Span> {
        let around = |x: f64, by: f64| Some(Span { low: x - by, high: x + by });
        // In points for a share, and as a part for values above a whole.
        let bound = |x: f64| TIE * x.abs().max(1.0);
        if measure == Measure::Between {
            let end = |i: usize| paper.get(i).and_then(Json::as_f64);
            let (low, high) = (end(0)?, end(1)?);
            return Some(Span { low: low - bound(low), high: high + bound(high) });
        }
        let x = paper.as_f64()?;
        match measure {
            Measure::Points => match reference.map(|r| (x - r).abs()) {
                None => around(x, POINTS),
                Some(change) if change < POINTS => around(x, SMALL),
                Some(change) => around(x, POINTS.max(PART * change)),
            },
            Measure::Ratio => around(x, PART * x.abs()),
            Measure::AtMost => Some(Span { low: f64::NEG_INFINITY, high: x + bound(x) }),
            Measure::Between | Measure::Holds | Measure::Missing => None,
        }
    }

    /// Parses a pair of numbers, which may be infinite.
    fn read(value: &Value) -> Option<Span> {
        let [low, high] = value.as_array()?.as_slice() else { return None };
        Some(Span { low: number(low)?, high: number(high)? })
    }
}

fn number(v: &Value) -> Option<f64> {
    v.as_float().or(v.as_integer().map(|i| i as f64))
}

/// A rule for the ratio of two of our values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// More than 1 by over this part.
    Beyond(f64),
    /// Different from 1 by at most this part, in either direction.
    Similar(f64),
    /// Less than that.
    Below(f64),
    /// Between two numbers.
    Between(f64, f64),
}

impl Rule {
    /// An order holds unless it is reversed by more than a tie.
    pub const ORDER: Rule = Rule::AtLeast(1.0 - TIE);
    /// An effect without a printed size is more than a tie.
    pub const EFFECT: Rule = Rule::Beyond(TIE);
    /// The rule for similar, comparable or equal values.
    pub const SIMILAR: Rule = Rule::Similar(SIMILAR);

    /// Whether `ratio` is allowed; NaN never is.
    pub fn allows(self, ratio: f64) -> bool {
        match self {
            Rule::AtLeast(least) => ratio >= least - ROUNDING,
            Rule::AtMost(most) => ratio <= most + ROUNDING,
            Rule::Beyond(part) => ratio > 1.0 + part + ROUNDING,
            Rule::Similar(part) => (ratio - 1.0).abs() <= part + ROUNDING,
            Rule::Below(end) => ratio < end - ROUNDING,
            Rule::Between(low, high) => Span { low, high }.has(ratio),
        }
    }
}

/// The forms of a `within` that is a text.
const FORMS: &str = "\"at least 0.98 of …\", \"at most 1.02 of …\", \"between 1.5 and 2.5 …\", \
                     \"beyond 2 %\", \"within 10 %\", \"below 1\"";

/// The rules of a text. Clauses are separated by commas and semicolons; clauses in none of the
/// forms are explanations.
pub fn rules(text: &str) -> Vec<Rule> {
    text.to_lowercase().split([',', ';']).filter_map(|clause| rule(clause.trim())).collect()
}

fn rule(clause: &str) -> Option<Rule> {
    let after = |words: &str| clause.split_once(words).map(|(_, rest)| rest);
    let percent = |words: &str| Some(leading(after(words)?)? / 100.0);
    let between = || {
        let (low, high) = after("between")?.split_once(" and ")?;
        Some(Rule::Between(leading(low)?, leading(high)?))
    };
    let at_least = || after("at least").and_then(leading).map(Rule::AtLeast);
    let at_most = || after("at most").and_then(leading).map(Rule::AtMost);
    let below = || clause.strip_prefix("below").and_then(leading).map(Rule::Below);
    (percent("beyond").map(Rule::Beyond))
        .or_else(|| percent("within").map(Rule::Similar))
        .or_else(at_least)
        .or_else(at_most)
        .or_else(between)
        .or_else(below)
}

/// The number at the start of a text.
fn leading(text: &str) -> Option<f64> {
    text.trim().split([' ', '%']).next()?.parse().ok()
}

/// Checks a claim's `within` of one value against what the paper prints.
///
/// # Errors
///
/// What is wrong with it, and what is allowed instead.
pub fn check(within: &Value, paper: &Json) -> Result<(), String> {
    match within {
        Value::String(text) if rules(text).is_empty() => {
            Err(format!("{text:?} says no tolerance; allowed: {FORMS}, or [low, high]"))
        }
        Value::String(_) => Ok(()),
        Value::Array(all) if all.iter().any(Value::is_array) => {
            let printed = paper.as_array().map_or(0, Vec::len);
            if printed != all.len() {
                return Err(format!("{} ranges for {printed} values", all.len()));
            }
            (0..printed).try_for_each(|i| check(&all[i], &paper[i]))
        }
        within => {
            let span = Span::read(within);
            let span = span.ok_or_else(|| format!("{within} is neither [low, high] nor a text"))?;
            if span.low.is_nan() || span.high.is_nan() || span.low >= span.high {
                return Err(format!("the range {within} is upside down or of one value"));
            }
            let printed = paper.as_array().map_or(std::slice::from_ref(paper), Vec::as_slice);
            match printed.iter().filter_map(Json::as_f64).find(|x| !span.has(*x)) {
                Some(x) => Err(format!("what the paper prints, {x}, is not in {within}")),
                None => Ok(()),
            }
        }
    }
}

/// The range of a value, or of element `index` of it.
pub fn span(within: &Value, index: Option<usize>) -> Option<Span> {
    match index {
        Some(i) => Span::read(within.get(i)?),
        None => Span::read(within),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Values just inside pass, values just outside fail. An effect is more than a tie; an order
        /// permits one.
        #[test]
        fn rules_hold_to_their_ends(end in 0.03..3.0f64, part in 0.01..0.5f64) {
            let (inside, outside) = (0.9999, 1.0001);
            prop_assert!(Rule::AtLeast(end).allows(end) && !Rule::AtLeast(end).allows(inside * end));
            prop_assert!(Rule::AtMost(end).allows(end) && !Rule::AtMost(end).allows(outside * end));
            prop_assert!(!Rule::Below(end).allows(end) && Rule::Below(end).allows(inside * end));
            let beyond = Rule::Beyond(part);
            prop_assert!(!beyond.allows(1.0 + part) && beyond.allows(1.0 + outside * part));
            for sign in [-1.0, 1.0] {
                let similar = |x: f64| Rule::Similar(part).allows(1.0 + sign * x * part);
                prop_assert!(similar(1.0) && !similar(outside));
            }
            let between = Rule::Between(end, end + part);
            prop_assert!(between.allows(end) && between.allows(end + part));
            prop_assert!(!between.allows(inside * end) && !between.allows(outside * (end + part)));
        }

        #[test]
        fn a_tie_is_an_order_and_no_effect(x in -0.0199..0.0199f64) {
            prop_assert!(Rule::ORDER.allows(1.0 + x));
            prop_assert!(!Rule::EFFECT.allows(1.0 + x));
        }

        #[test]
        fn what_is_no_number_is_never_allowed(a in -1.0..9.0f64) {
            for rule in [Rule::AtLeast(a), Rule::AtMost(a), Rule::Beyond(a), Rule::Similar(a),
                         Rule::Below(a), Rule::Between(a, a + 1.0)] {
                prop_assert!(!rule.allows(f64::NAN));
            }
        }
    }

    #[test]
    fn texts_say_rules() {
        for (text, said) in [
            ("at most 1.02 of the run time, each below 100 %", vec![Rule::AtMost(1.02)]),
            ("at least 0.9 of 16", vec![Rule::AtLeast(0.9)]),
            ("at least 0.98 of both at 3, 4 and 5", vec![Rule::AtLeast(0.98)]),
            ("beyond 2 %; METIS within 10 %", vec![Rule::Beyond(0.02), Rule::Similar(0.1)]),
            ("the best of 2, 4 and 8 above it beyond 2 %", vec![Rule::Beyond(0.02)]),
            ("between 1.5 and 2.5 of it, below 1", vec![Rule::Between(1.5, 2.5), Rule::Below(1.0)]),
            ("near, at least as far", vec![]),
        ] {
            assert_eq!(rules(text), said, "{text}");
        }
    }
}
