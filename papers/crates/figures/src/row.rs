// SPDX-License-Identifier: MIT OR Apache-2.0
//! One value of the paper and ours, and whether the two agree.

use crate::claim::Kind;
use crate::within::{Measure, Span, TIE};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Begins the evidence of a value that agrees and could not have differed.
pub const NO_EVIDENCE: &str = "no evidence";

/// One value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The claim's id.
    pub entry: String,
    /// The name of the value.
    pub name: String,
    pub kind: Kind,
    pub measure: Measure,
    /// The value in the claim.
    pub paper: Value,
    /// A number, or whether a statement holds; null if missing.
    pub ours: Value,
    /// The value of "no effect" in the paper's unit: 1 for a normalised performance, the baseline's
    /// value for a count. Null: the value has no direction.
    pub reference: Option<f64>,
    /// The range in which ours agrees; null: no bound. Statements have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<[Option<f64>; 2]>,
    pub within: bool,
    pub direction_right: bool,
    /// The rule for a statement.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evidence: String,
    /// First seed of the runs.
    pub seed: u64,
}

impl Row {
    /// Whether it is not within tolerance, or has the wrong direction.
    pub fn misses(&self) -> bool {
        !(self.within && self.direction_right)
    }

    /// Whether it agrees and might not have: it is not marked as [`NO_EVIDENCE`].
    pub fn is_evidence(&self) -> bool {
        self.within && !self.evidence.starts_with(NO_EVIDENCE)
    }
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// The value agrees.
    pub within: bool,
    /// It lies on the paper's side of the reference.
    pub direction_right: bool,
}

/// The bounds of a range without infinity, which JSON lacks.
pub(crate) fn ends(span: Span) -> [Option<f64>; 2] {
    [span.low, span.high].map(|end| Some(end).filter(|end| end.is_finite()))
}

/// Compares a value of ours with what agrees with the paper's.
///
/// A direction is right if our value agrees, or differs from `reference` in the paper's direction by
/// more than a tie: [`TIE`] in points, or as a part of a reference that is not a share. No effect is
/// not a direction. For bounds, statements and values without a reference the direction is right if
/// they agree.
pub fn judge(
    ours: &Value,
    paper: &Value,
    reference: Option<f64>,
    allowed: Option<[Option<f64>; 2]>,
) -> Judged {
    let is = |within| Judged { within, direction_right: within };
    if let Some(holds) = ours.as_bool() {
        return is(holds);
    }
    let x = ours.as_f64().filter(|x| x.is_finite());
    let Some((x, [low, high])) = x.zip(allowed) else { return is(false) };
    let (low, high) = (low.unwrap_or(f64::NEG_INFINITY), high.unwrap_or(f64::INFINITY));
    let within = Span { low, high }.has(x);
    let effect = |r: f64| {
        // For a text, the side follows from the range that it allows.
        let side = paper.as_f64().map_or((low - r).max(0.0) + (high - r).min(0.0), |p| p - r);
        (x - r) * side > 0.0 && (x - r).abs() > TIE * r.abs().max(1.0)
    };
    Judged { within, direction_right: within || reference.is_some_and(effect) }
}

impl Row {
    /// Judges the row again. Returns whether `within` and `direction_right` follow from its values.
    pub fn is_honest(&self) -> bool {
        let j = match self.measure {
            Measure::Missing => Judged { within: false, direction_right: false },
            _ => judge(&self.ours, &self.paper, self.reference, self.allowed),
        };
        (j.within, j.direction_right) == (self.within, self.direction_right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn by_rule(measure: Measure, paper: Value, ours: f64, reference: Option<f64>) -> (bool, bool) {
        let allowed = Span::by_rule(measure, &paper, reference).map(ends);
        let j = judge(&json!(ours), &paper, reference, allowed);
        (j.within, j.direction_right)
    }

    /// Half the width of the range that agrees, according to the rule.
    fn half(measure: Measure, x: f64, reference: Option<f64>) -> f64 {
        match (measure, reference) {
            (Measure::Points, None) => 0.10,
            (Measure::Points, Some(r)) if (x - r).abs() < 0.10 => 0.05,
            (Measure::Points, Some(r)) => 0.10f64.max(0.25 * (x - r).abs()),
            _ => 0.25 * x,
        }
    }

    const KINDS: [(Measure, Option<f64>); 4] = [
        (Measure::Points, None),
        (Measure::Points, Some(0.0)),
        (Measure::Points, Some(1.0)),
        (Measure::Ratio, Some(1.0)),
    ];

    proptest! {
        #[test]
        fn the_printed_number_agrees_and_just_outside_does_not(x in 0.02..20.0f64, above: bool) {
            for (measure, reference) in KINDS {
                let half = half(measure, x, reference);
                let at = |part: f64| x + if above { part * half } else { -part * half };
                prop_assert!(by_rule(measure, json!(x), x, reference).0);
                prop_assert!(by_rule(measure, json!(x), at(0.999), reference).0);
                prop_assert!(!by_rule(measure, json!(x), at(1.001), reference).0, "{measure:?}");
            }
        }

        #[test]
        fn bounds_and_ranges_are_widened_by_two_points(a in -0.4..0.4f64, wide in 0.0..0.5f64) {
            use Measure::*;
            for (x, is) in [(0.0, true), (0.0199, true), (0.0201, false)] {
                prop_assert_eq!(by_rule(AtMost, json!(a), a + x, None), (is, is));
                let range = json!([a, a + wide]);
                prop_assert_eq!(by_rule(Between, range.clone(), a - x, None), (is, is));
                prop_assert_eq!(by_rule(Between, range, a + wide + x, None), (is, is));
            }
            prop_assert!(by_rule(AtMost, json!(a), a - 5.0, None).0);
        }

        /// For counts it is two per cent.
        #[test]
        fn bounds_of_counts_are_widened_by_a_part(n in 2.0..1e6f64) {
            prop_assert!(by_rule(Measure::AtMost, json!(n), 1.0199 * n, None).0);
            prop_assert!(!by_rule(Measure::AtMost, json!(n), 1.0201 * n, None).0);
        }

        /// A tie with the baseline does not agree with a printed effect, unless the printed size
        /// itself is within its tolerance of no effect.
        #[test]
        fn no_effect_is_no_direction(p in 0.11..30.0f64, tie in -0.02..0.02f64) {
            prop_assert_eq!(by_rule(Measure::Points, json!(p), tie, Some(0.0)), (false, false));
            prop_assert!(by_rule(Measure::Points, json!(p), 0.0201, Some(0.0)).1);
            prop_assert!(!by_rule(Measure::Points, json!(p), -0.0201, Some(0.0)).1);
        }

        #[test]
        fn nearer_is_never_worse(p in 0.1..10.0f64, a in 0.0..2.0f64, part in 0.0..1.0f64, below: bool) {
            let sign = if below { -1.0 } else { 1.0 };
            for (measure, reference) in KINDS {
                let far = by_rule(measure, json!(p), p + sign * a, reference).0;
                let near = by_rule(measure, json!(p), p + sign * a * part, reference).0;
                prop_assert!(near || !far);
            }
        }
    }

    #[test]
    fn a_direction_is_a_side_of_the_reference() {
        let stock = Some(4200.0);
        assert_eq!(by_rule(Measure::Ratio, json!(12000), 5000.0, stock), (false, true));
        assert_eq!(by_rule(Measure::Ratio, json!(12000), 4250.0, stock), (false, false));
        assert_eq!(by_rule(Measure::Ratio, json!(12000), 4000.0, stock), (false, false));
        let text = |x: f64| judge(&json!(x), &json!("10x"), Some(1.0), Some([Some(9.8), None]));
        assert_eq!(text(12.0), Judged { within: true, direction_right: true });
        assert_eq!(text(2.0), Judged { within: false, direction_right: true });
        assert_eq!(text(1.01), Judged { within: false, direction_right: false });
        assert_eq!(text(0.5), Judged { within: false, direction_right: false });
    }

    #[test]
    fn what_is_not_there_agrees_with_nothing() {
        let all = Some([None, None]);
        for ours in [Value::Null, json!("x")] {
            assert!(!judge(&ours, &json!(1.0), None, all).within);
        }
        assert!(!judge(&json!(1.0), &json!("x"), None, None).within);
        assert!(judge(&json!(true), &json!("best"), None, None).within);
        assert!(!judge(&json!(false), &json!("best"), None, None).direction_right);
        assert_eq!(Span::by_rule(Measure::Between, &json!([1]), None), None);
        assert_eq!(Span::by_rule(Measure::Points, &json!("x"), None), None);
    }
}
