// SPDX-License-Identifier: MIT OR Apache-2.0
//! What many worlds say of the papers' values: covered, ruled out, or nothing.

use crate::claim::Kind;
use crate::row::Row;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use unspin_worlds::quantile;

/// The ends of a band that nine worlds in ten lie in.
const BAND: [f64; 2] = [0.05, 0.95];

/// What the worlds say of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// What the paper prints lies in the 90 % band.
    Covered,
    /// It lies outside: the model, with all that it does not know, says something else.
    RuledOut,
    /// The band has it and says too little: it is more than twice as wide as what agrees, or has
    /// no effect in it as well. A statement: it holds in some worlds and not in others.
    Uninformative,
}

/// One value over the worlds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outlook {
    /// The claim's id.
    pub entry: String,
    /// Which of its values.
    pub name: String,
    /// What the paper prints.
    pub paper: Value,
    /// Worlds in which it came out as a number or as a statement.
    pub worlds: u32,
    /// Ends of the 90 % band; of a statement the share of worlds in which it holds, twice.
    pub band: [f64; 2],
    /// Whether it is a statement.
    pub holds: bool,
    pub verdict: Verdict,
}

/// All values over the worlds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outlooks {
    /// Of unspin.
    pub version: String,
    /// Worlds that were asked for.
    pub worlds: u32,
    /// They were drawn by this seed.
    pub seed: u64,
    /// What was drawn, by name.
    pub inputs: Vec<String>,
    /// Worlds without an entry, and why: nothing is dropped silently.
    pub failed: Vec<String>,
    pub values: Vec<Outlook>,
}

impl Outlooks {
    /// Of values with that verdict, whose entries `of` says yes to.
    pub fn count(&self, verdict: Verdict, of: &dyn Fn(&str) -> bool) -> usize {
        self.values.iter().filter(|v| v.verdict == verdict && of(&v.entry)).count()
    }
}

/// Of the rows of all worlds, world after world: those of one value belong together, and the first
/// says what the paper prints and what agrees.
pub fn outlooks(worlds: &[Vec<Row>]) -> Vec<Outlook> {
    let mut all: Vec<(&Row, Vec<&Row>)> = Vec::new();
    for row in worlds.iter().flatten().filter(|r| r.kind == Kind::Predict) {
        match all.iter_mut().find(|(r, _)| (&r.entry, &r.name) == (&row.entry, &row.name)) {
            Some((_, rows)) => rows.push(row),
            None => all.push((row, vec![row])),
        }
    }
    all.iter().filter_map(|(first, rows)| outlook(first, rows)).collect()
}

fn outlook(first: &Row, rows: &[&Row]) -> Option<Outlook> {
    let (entry, name, paper) = (first.entry.clone(), first.name.clone(), first.paper.clone());
    let held: Vec<bool> = rows.iter().filter_map(|r| r.ours.as_bool()).collect();
    if !held.is_empty() {
        let share = held.iter().filter(|h| **h).count() as f64 / held.len() as f64;
        let verdict = match share {
            s if s >= BAND[1] => Verdict::Covered,
            s if s <= BAND[0] => Verdict::RuledOut,
            _ => Verdict::Uninformative,
        };
        let (worlds, band) = (held.len() as u32, [share, share]);
        return Some(Outlook { entry, name, paper, worlds, band, holds: true, verdict });
    }
    let mut ours: Vec<f64> = rows.iter().filter_map(|r| r.ours.as_f64()).collect();
    ours.sort_by(f64::total_cmp);
    let band = [quantile(&ours, BAND[0])?, quantile(&ours, BAND[1])?];
    let verdict = verdict(first, band);
    Some(Outlook { entry, name, paper, worlds: ours.len() as u32, band, holds: false, verdict })
}

fn verdict(row: &Row, [low, high]: [f64; 2]) -> Verdict {
    let [least, most] = row.allowed.unwrap_or([None, None]);
    let (least, most) = (least.unwrap_or(f64::NEG_INFINITY), most.unwrap_or(f64::INFINITY));
    let has = |x: f64| low <= x && x <= high;
    // Of a bound or a range all that agrees is what the paper prints.
    let covered = match row.paper.as_f64() {
        Some(printed) if least.is_finite() && most.is_finite() => has(printed),
        _ => low <= most && least <= high,
    };
    if !covered {
        return Verdict::RuledOut;
    }
    let agrees = |x: f64| least <= x && x <= most;
    let too_wide = high - low > 2.0 * (most - least);
    if too_wide || row.reference.is_some_and(|none| has(none) && !agrees(none)) {
        return Verdict::Uninformative;
    }
    Verdict::Covered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::within::Measure;
    use proptest::prelude::*;
    use serde_json::json;

    fn row(paper: Value, ours: Value, allowed: Option<[Option<f64>; 2]>) -> Row {
        Row {
            entry: "p_a".into(),
            name: "x".into(),
            kind: Kind::Predict,
            measure: Measure::Points,
            paper,
            ours,
            reference: Some(1.0),
            allowed,
            within: false,
            direction_right: false,
            evidence: String::new(),
            seed: 1,
        }
    }

    fn of(paper: f64, half: f64, ours: &[f64]) -> Outlook {
        let allowed = Some([Some(paper - half), Some(paper + half)]);
        let worlds: Vec<Vec<Row>> =
            ours.iter().map(|x| vec![row(json!(paper), json!(x), allowed)]).collect();
        outlooks(&worlds).remove(0)
    }

    proptest! {
        #[test]
        fn a_band_has_the_value_or_rules_it_out(
            ours in proptest::collection::vec(1.21..1.4f64, 2..40),
            paper in 1.15..1.5f64,
        ) {
            let o = of(paper, 0.1, &ours);
            let has = o.band[0] <= paper && paper <= o.band[1];
            prop_assert_eq!(o.verdict == Verdict::Covered, has);
            prop_assert_eq!(o.verdict == Verdict::RuledOut, !has);
            let (least, most) = ours.iter().fold((9.0f64, 0.0f64), |(a, b), x| (a.min(*x), b.max(*x)));
            prop_assert!(least <= o.band[0] && o.band[1] <= most);
        }

        #[test]
        fn wide_bands_and_those_with_no_effect_say_nothing(wide in 0.41..3.0f64) {
            let middle = 2.0 + wide;
            let even = |from: f64, width: f64| (0..41).map(|i| from + width * f64::from(i) / 40.0).collect::<Vec<_>>();
            let width = wide / 0.9;
            let far = of(middle, 0.1, &even(middle - width / 2.0, width));
            prop_assert_eq!(far.verdict, Verdict::Uninformative);
            prop_assert_eq!(of(middle, wide, &even(middle - width / 2.0, width)).verdict, Verdict::Covered);
            let both = of(1.15, 0.1, &even(0.95, 0.3));
            prop_assert_eq!(both.verdict, Verdict::Uninformative);
        }

        #[test]
        fn statements_hold_in_all_worlds_in_none_or_say_nothing(yes in 0..30u32, no in 0..30u32) {
            prop_assume!(yes + no > 0);
            let worlds: Vec<Vec<Row>> = (0..yes + no)
                .map(|i| vec![row(json!("best"), json!(i < yes), None)])
                .collect();
            let o = outlooks(&worlds).remove(0);
            let share = f64::from(yes) / f64::from(yes + no);
            let verdict = match (share >= 0.95, share <= 0.05) {
                (true, _) => Verdict::Covered,
                (_, true) => Verdict::RuledOut,
                _ => Verdict::Uninformative,
            };
            prop_assert_eq!((o.verdict, o.worlds), (verdict, yes + no));
        }
    }

    #[test]
    fn a_bound_is_covered_where_worlds_keep_it() {
        let of = |ours: [f64; 2]| {
            let row = |x: f64| Row {
                reference: None,
                ..row(json!(0.06), json!(x), Some([None, Some(0.08)]))
            };
            outlooks(&ours.map(|x| vec![row(x)])).remove(0).verdict
        };
        assert_eq!(of([0.0, 0.01]), Verdict::Covered);
        assert_eq!(of([0.07, 0.2]), Verdict::Covered);
        assert_eq!(of([0.1, 0.2]), Verdict::RuledOut);
    }

    #[test]
    fn worlds_in_which_a_value_did_not_come_out_are_not_counted() {
        let allowed = Some([Some(0.0), Some(2.0)]);
        let worlds = [json!(1.0), Value::Null].map(|x| vec![row(json!(1.0), x, allowed)]);
        assert_eq!(outlooks(&worlds)[0].worlds, 1);
        let none = [vec![row(json!(1.0), Value::Null, allowed)]];
        assert_eq!(outlooks(&none), []);
    }
}
