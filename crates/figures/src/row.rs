// SPDX-License-Identifier: MIT OR Apache-2.0
//! One value of the paper beside ours, and whether the two agree.

use crate::claim::Kind;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Gains and shares agree within so many points.
pub const POINTS: f64 = 0.10;
/// Ratios and counts agree within this part of the paper's value.
pub const PART: f64 = 0.25;
/// Bounds are printed to a point: half of one is rounding.
const ROUNDING: f64 = 0.005;
/// What differs from its reference by no more than this is no effect, in neither direction.
const NO_EFFECT: f64 = 0.02;

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// A gain, loss, share or normalised performance: ±10 points.
    Points,
    /// A ratio, a count, or a time (given as a ratio): ±25 %.
    Ratio,
    /// The paper's value is the largest there is.
    AtMost,
    /// The paper's value is the smallest there is.
    AtLeast,
    /// The paper gives the ends of a range.
    Between,
    /// A statement that holds or does not.
    Holds,
    /// Nothing was made to compare.
    Missing,
}

/// One value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The claim's id.
    pub entry: String,
    /// Which of its values.
    pub name: String,
    pub kind: Kind,
    pub measure: Measure,
    /// As the claim has it.
    pub paper: Value,
    /// Number, or whether a statement holds; null where there is none.
    pub ours: Value,
    /// What "no effect" would be, in the paper's unit: 1 for a normalised performance, the
    /// baseline's value for a count. Null: the value has no direction.
    pub reference: Option<f64>,
    pub within: bool,
    pub direction_right: bool,
    /// What a statement was judged by.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evidence: String,
    /// First seed of the runs.
    pub seed: u64,
}

impl Row {
    /// Not within tolerance, or in the wrong direction.
    pub fn misses(&self) -> bool {
        !(self.within && self.direction_right)
    }
}

/// What a comparison comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// The value agrees.
    pub within: bool,
    /// It lies on the paper's side of the reference.
    pub direction_right: bool,
}

/// Compares a value of ours with the paper's.
///
/// The direction is right where both lie on the same side of `reference` or both within 2 points
/// (2 % of a reference that is no share) of it; of bounds, statements and values without a
/// reference, where they agree.
pub fn judge(measure: Measure, paper: &Value, ours: &Value, reference: Option<f64>) -> Judged {
    let never = Judged { within: false, direction_right: false };
    let is = |within| Judged { within, direction_right: within };
    if measure == Measure::Holds {
        return is(ours.as_bool() == Some(true));
    }
    let Some(x) = ours.as_f64().filter(|x| x.is_finite()) else { return never };
    if measure == Measure::Between {
        let end = |i: usize| paper.get(i).and_then(Value::as_f64);
        let (Some(low), Some(high)) = (end(0), end(1)) else { return never };
        return is((low - ROUNDING..=high + ROUNDING).contains(&x));
    }
    let Some(p) = paper.as_f64() else { return never };
    let within = match measure {
        // Numbers that are 10 points apart as printed are within 10 points.
        Measure::Points => (x - p).abs() <= POINTS + 1e-9,
        Measure::Ratio => (x - p).abs() <= PART * p.abs() + 1e-9,
        Measure::AtMost => x <= p + ROUNDING,
        Measure::AtLeast => x >= p - ROUNDING,
        Measure::Between | Measure::Holds | Measure::Missing => false,
    };
    let direction_right = match (measure, reference) {
        (Measure::Points | Measure::Ratio, Some(r)) => {
            let none = NO_EFFECT * r.abs().max(1.0);
            let same_side = (x - r) * (p - r) > 0.0;
            same_side || ((x - r).abs() <= none && (p - r).abs() <= none)
        }
        _ => within,
    };
    Judged { within, direction_right }
}

impl Row {
    /// Judges the row again: whether `within` and `direction_right` are what its values say.
    pub fn is_honest(&self) -> bool {
        let j = judge(self.measure, &self.paper, &self.ours, self.reference);
        (j.within, j.direction_right) == (self.within, self.direction_right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn is(measure: Measure, paper: Value, ours: f64, reference: Option<f64>) -> (bool, bool) {
        let j = judge(measure, &paper, &json!(ours), reference);
        (j.within, j.direction_right)
    }

    #[test]
    fn tolerances_are_the_stated_ones() {
        use Measure::*;
        let one = Some(1.0);
        assert_eq!(is(Points, json!(1.34), 1.44, one), (true, true));
        assert_eq!(is(Points, json!(1.34), 1.45, one), (false, true));
        assert_eq!(is(Points, json!(1.05), 0.97, one), (true, false));
        assert_eq!(is(Points, json!(1.01), 0.99, one), (true, true), "neither has an effect");
        assert_eq!(is(Ratio, json!(4), 5.0, one), (true, true));
        assert_eq!(is(Ratio, json!(4), 5.01, one), (false, true));
        assert_eq!(is(Ratio, json!(12000), 9000.0, Some(4200.0)), (true, true));
        assert_eq!(is(Ratio, json!(12000), 4000.0, Some(4200.0)), (false, false));
        assert_eq!(is(AtMost, json!(0.02), 0.024, None), (true, true));
        assert_eq!(is(AtMost, json!(0.02), 0.026, None), (false, false));
        assert_eq!(is(AtLeast, json!(1.0), 0.994, None), (false, false));
        assert_eq!(is(Between, json!([0.01, 0.02]), 0.015, None), (true, true));
        assert_eq!(is(Between, json!([0.01, 0.02]), 0.03, None), (false, false));
        assert_eq!(is(Missing, json!(1.0), 1.0, None), (false, false));
    }

    #[test]
    fn what_is_not_there_agrees_with_nothing() {
        for measure in [Measure::Points, Measure::Ratio, Measure::AtMost, Measure::Holds] {
            let j = judge(measure, &json!(1.0), &Value::Null, None);
            assert!(!j.within && !j.direction_right);
        }
        assert!(judge(Measure::Holds, &json!("best"), &json!(true), None).within);
        assert!(!judge(Measure::Holds, &json!("best"), &json!(false), None).within);
        assert!(!judge(Measure::Between, &json!([1]), &json!(1.0), None).within);
        assert!(!judge(Measure::Points, &json!("x"), &json!(1.0), None).within);
        assert!(!judge(Measure::AtMost, &json!(1.0), &json!(f64::NAN), None).within);
    }

    proptest! {
        #[test]
        fn nearer_is_never_worse(p in 0.1..10.0f64, a in 0.0..2.0f64, part in 0.0..1.0f64, below: bool) {
            let sign = if below { -1.0 } else { 1.0 };
            for measure in [Measure::Points, Measure::Ratio] {
                let far = is(measure, json!(p), p + sign * a, None).0;
                let near = is(measure, json!(p), p + sign * a * part, None).0;
                prop_assert!(near || !far);
            }
        }
    }
}
