// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings that bound each other: APLE's window and its steps. When one is written, the module moves
//! others that contradict it (core/kmod/settings.c).

use std::collections::BTreeMap;
use unspin_uapi::Number;

/// In the order of writing.
const ALL: [Number; 5] =
    [Number::WINDOW_MIN, Number::WINDOW_MAX, Number::WINDOW_INIT, Number::DELTA, Number::DELTA_MAX];

/// The bounds of the window.
pub const WINDOW: [Number; 3] = [Number::WINDOW_MIN, Number::WINDOW_INIT, Number::WINDOW_MAX];
/// The steps, which may not be above the largest window.
pub const STEPS: [Number; 2] = [Number::DELTA, Number::DELTA_MAX];

/// Pairs of bounds of the window: the lower and the higher one.
pub const WINDOW_PAIRS: [(Number, Number); 3] = [
    (Number::WINDOW_MIN, Number::WINDOW_INIT),
    (Number::WINDOW_MIN, Number::WINDOW_MAX),
    (Number::WINDOW_INIT, Number::WINDOW_MAX),
];

/// Values by the names of their settings.
type Values = BTreeMap<String, String>;

/// A value above the one that bounds it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{low_is} is above {high} = {high_is}")]
pub struct Contradiction {
    pub low: &'static str,
    pub low_is: u32,
    pub high: &'static str,
    pub high_is: u32,
}

/// The contradictions of these values: the module would change one of them, or refuse it.
pub fn contradictions(value: impl Fn(&str) -> Option<u32>) -> Vec<Contradiction> {
    let steps = STEPS.map(|step| (step, Number::WINDOW_MAX));
    let of = |(low, high): (Number, Number)| {
        let (low, high) = (low.file(), high.file());
        let (low_is, high_is) = (value(low)?, value(high)?);
        (low_is > high_is).then_some(Contradiction { low, low_is, high, high_is })
    };
    WINDOW_PAIRS.into_iter().chain(steps).filter_map(of).collect()
}

/// The bounds and steps after these were written over those `before`, as the module settles them.
pub fn settled(before: &Values, written: &Values) -> Values {
    let read =
        |of: &Values| ALL.map(|number| -> Option<u32> { of.get(number.file())?.parse().ok() });
    let [mut min, mut max, mut init, delta, delta_max] = read(before);
    let [min_to, max_to, init_to, delta_to, delta_max_to] = read(written);
    if let Some(to) = min_to {
        min = Some(to);
        max = max.map(|max| max.max(to));
        init = init.map(|init| init.max(to));
    }
    if let Some(to) = max_to {
        max = Some(to);
        min = min.map(|min| min.min(to));
        init = init.map(|init| init.min(to));
    }
    if let Some(to) = init_to {
        init = Some(to);
        min = min.map(|min| min.min(to));
        max = max.map(|max| max.max(to));
    }
    let fit = |step: Option<u32>| step.map(|step| step.min(max.unwrap_or(step)));
    let steps = [delta_to.or_else(|| fit(delta)), delta_max_to.or_else(|| fit(delta_max))];
    let all = ALL.into_iter().zip([min, max, init].into_iter().chain(steps));
    all.filter_map(|(number, is)| Some((number.file().to_string(), is?.to_string()))).collect()
}

/// The values that the module moves if these are written over those of `now`.
pub fn moved(now: &Values, written: &Values) -> Values {
    let mut moved = settled(now, written);
    moved.retain(|key, value| !written.contains_key(key) && now.get(key) != Some(value));
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(Number, u32)]) -> Values {
        pairs.iter().map(|(n, value)| (n.file().to_string(), value.to_string())).collect()
    }

    fn defaults() -> Values {
        values(&ALL.map(|number| (number, number.default())))
    }

    #[test]
    fn what_is_written_moves_the_others() {
        let of = |pairs: &[(Number, u32)]| {
            let after = settled(&defaults(), &values(pairs));
            ALL.map(|number| after[number.file()].parse::<u32>().unwrap())
        };
        assert_eq!(of(&[]), [4096, 32768, 8192, 1024, 8192]);
        assert_eq!(of(&[(Number::WINDOW_MAX, 100)]), [100, 100, 100, 100, 100]);
        assert_eq!(of(&[(Number::WINDOW_MIN, 40_000)]), [40_000, 40_000, 40_000, 1024, 8192]);
        assert_eq!(of(&[(Number::WINDOW_INIT, 64)]), [64, 32768, 64, 1024, 8192]);
        assert_eq!(of(&[(Number::DELTA, 5)]), [4096, 32768, 8192, 5, 8192]);
        let wide = values(&[(Number::WINDOW_MAX, 5000)]);
        let expected = values(&[(Number::WINDOW_INIT, 5000), (Number::DELTA_MAX, 5000)]);
        assert_eq!(moved(&defaults(), &wide), expected);
        let few = values(&[(Number::WINDOW_MIN, 64)]);
        assert_eq!(settled(&Values::new(), &few), few);
    }

    #[test]
    fn a_value_above_its_bound_contradicts_it() {
        let of = |pairs: &[(Number, u32)]| {
            let values = values(pairs);
            contradictions(|key| values.get(key)?.parse().ok())
        };
        assert!(of(&[(Number::WINDOW_MIN, 200), (Number::WINDOW_MAX, 200)]).is_empty());
        assert!(of(&[(Number::WINDOW_MIN, 200)]).is_empty());
        let found = of(&[(Number::DELTA, 200), (Number::WINDOW_MAX, 100)]);
        assert_eq!(found[0].to_string(), "200 is above window_max_cycles = 100");
        assert_eq!((found.len(), found[0].low), (1, "delta_cycles"));
    }
}
