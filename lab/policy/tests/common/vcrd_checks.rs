// SPDX-License-Identifier: MIT OR Apache-2.0
//! ASMan's learner (section 4.3, Algorithms 1 and 2) and its threshold (4.2).

use super::{any_u32, any_u64, property, Api};
use proptest::prelude::*;
use unspin_policy::vcrd::{Params, State};

const MS: u64 = 1000;

/// Four values, 10 to 40 ms, worked by hand: e / (N − 1) = 0.2 / 3, 1 − e = 0.8, r = 0.1.
pub fn vcrd_worked_example(api: &Api) {
    let params = Params { values: 4, ratio_max: 16, ..Params::default() };
    let mut state = api.vcrd_new(&params);
    // q(0) = s(0) A / N = 1 × 2.5 / 4
    assert_eq!(state.propensity_ppm[..4], [625_000; 4]);
    assert_eq!(api.vcrd_at(&mut state, &params, 0, 0), 10 * MS);
    assert_eq!(api.vcrd_at(&mut state, &params, 100 * MS, 0), 10 * MS);
    assert_eq!(state.over_us, 90 * MS);
    // 2 ms after HIGH ended: too short, so all longer values gain 0.8; the next longer is tried.
    assert_eq!(api.vcrd_at(&mut state, &params, 112 * MS, 0), 20 * MS);
    assert_eq!(state.propensity_ppm[..4], [604_166, 1_362_500, 1_362_500, 1_362_500]);
    // Exactly Δ after it ended: too short again.
    assert_eq!(api.vcrd_at(&mut state, &params, 142 * MS, 0), 30 * MS);
    assert_eq!(state.propensity_ppm[..4], [584_026, 1_317_083, 2_026_250, 2_026_250]);
    // 40 ms after it ended, 10 ms the time before: gains 40 / 10 × 0.8.
    assert_eq!(api.vcrd_at(&mut state, &params, 212 * MS, 0), 30 * MS);
    assert_eq!(state.propensity_ppm[2], 1_823_625 + 3_200_000);
    assert_eq!(state.events, 5);
}

/// Algorithms 1 and 2 again, as they are printed, in numbers that cannot overflow.
struct Oracle {
    q: Vec<u128>,
    estimate: usize,
    last: u64,
    over: i128,
    events: u64,
}

impl Oracle {
    fn event(&mut self, params: &Params, now: u64, draw: u32) -> u64 {
        let (n, ppm) = (params.values as usize, 1_000_000u128);
        let (r, e) = (u128::from(params.recency_ppm), u128::from(params.experiment_ppm));
        let x_us = |x: usize| (x as i128 + 1) * i128::from(params.step_us);
        let over = i128::from(now - self.last) - x_us(self.estimate);
        let chosen = if self.events < 2 {
            ((u128::from(draw) * n as u128) >> 32) as usize
        } else {
            for x in 0..n {
                let others = if n > 1 { self.q[x] * e / ppm / (n as u128 - 1) } else { 0 };
                let u = if over <= params.margin_us.into() {
                    if x > self.estimate {
                        ppm - e
                    } else {
                        others
                    }
                } else if x == self.estimate {
                    let bound = u128::from(params.ratio_max) * (ppm - e);
                    (over as u128 * (ppm - e) / self.over.max(1) as u128).min(bound)
                } else {
                    others
                };
                self.q[x] = (self.q[x] * (ppm - r) / ppm + u).min(1 << 41);
            }
            let most = *self.q.iter().max().unwrap();
            (0..n).map(|k| (self.estimate + k) % n).find(|&x| self.q[x] == most).unwrap()
        };
        if self.events > 0 {
            self.over = over;
        }
        self.estimate = chosen;
        self.last = now;
        self.events += 1;
        x_us(chosen) as u64
    }
}

fn sane_params() -> impl Strategy<Value = Params> {
    let ppm = || prop_oneof![0..=1_000_000u32, Just(0), Just(1_000_000)];
    (1..=32u32, 1..50_000u32, 1..4_000_000u32, ppm(), ppm(), 0..40_000u32, 1..=40u32).prop_map(
        |(values, step_us, initial_ppm, recency_ppm, experiment_ppm, margin_us, ratio_max)| {
            Params {
                threshold_log2_cycles: 20,
                values,
                step_us,
                initial_ppm,
                recency_ppm,
                experiment_ppm,
                margin_us,
                ratio_max,
            }
        },
    )
}

pub fn vcrd_conforms(api: &Api) {
    // How long after HIGH began or ended: also exactly at its end, and Δ after it.
    let wait = (0..5u8, 0..200_000u64);
    let events = prop::collection::vec((wait, any::<u32>()), 1..60);
    property(1000, (sane_params(), events), |(params, events)| {
        assert_eq!(unsafe { (api.vcrd_params_check)(&params) }, 0);
        let mut state = api.vcrd_new(&params);
        let n = params.values as usize;
        let q = u128::from(params.initial_ppm) * (n as u128 + 1) / (2 * n as u128);
        let mut oracle = Oracle { q: vec![q; n], estimate: 0, last: 0, over: 1, events: 0 };
        let mut now = 0;
        for ((kind, wait), draw) in events {
            now += match kind {
                0 => wait,
                1 => state.estimate_us,
                2 => state.estimate_us + u64::from(params.margin_us),
                3 => state.estimate_us + u64::from(params.margin_us) + 1,
                _ => state.estimate_us + wait,
            };
            let expected = oracle.event(&params, now, draw);
            assert_eq!(api.vcrd_at(&mut state, &params, now, draw), expected);
            let q: Vec<u128> = state.propensity_ppm[..n].iter().map(|&q| q.into()).collect();
            assert_eq!(q, oracle.q);
        }
    });
}

/// The first two estimates are drawn, each uniformly; the third is not.
pub fn vcrd_draws_twice(api: &Api) {
    let params = Params::default();
    for part in 0..256u32 {
        let mut state = api.vcrd_new(&params);
        for draw in [part << 24 | 0xff_ffff, !(part << 24)] {
            let now = state.high_until_us + 500 * MS;
            // 16 values: the top four bits say which.
            let drawn = (u64::from(draw >> 28) + 1) * 10 * MS;
            assert_eq!(api.vcrd_at(&mut state, &params, now, draw), drawn);
        }
        let drawn = state.estimate_us;
        // The second period lasts as long as the first: the drawn length is confirmed.
        let now = state.high_until_us + 500 * MS;
        assert_eq!(api.vcrd_at(&mut state, &params, now, part << 24), drawn);
    }
}

/// Localities as in figure 5, one a second: over-threshold locks throughout one where vCPUs do not
/// run together, none outside. How many events each took, and the last estimate.
fn localities(api: &Api, params: &Params, lasts_ms: u64) -> (Vec<u32>, u64) {
    let mut state = api.vcrd_new(params);
    let mut events = Vec::new();
    for locality in 0..60 {
        let mut now = locality * 1000 * MS;
        let end = now + lasts_ms * MS;
        let mut count = 0;
        while now < end {
            api.vcrd_at(&mut state, params, now, 0);
            assert!(api.vcrd_high(&state, now));
            now = state.high_until_us + MS;
            count += 1;
        }
        events.push(count);
    }
    (events, state.estimate_us)
}

/// The learner soon needs one event for each locality. With the quotient of Algorithm 2 left
/// unbounded it does not: the second, too short estimate of a locality is rewarded in
/// proportion to how soon after the first one it came, and is held for good.
pub fn vcrd_covers_a_locality(api: &Api) {
    let params = Params::default();
    for lasts_ms in [5, 35, 85, 155] {
        let (events, estimate_us) = localities(api, &params, lasts_ms);
        assert!(events[40..].iter().all(|&count| count == 1), "{lasts_ms} ms: {events:?}");
        assert!(estimate_us + MS >= lasts_ms * MS);
    }
    let (events, _) = localities(api, &Params { ratio_max: 1 << 20, ..params }, 35);
    assert!(events[40..].iter().all(|&count| count == 2), "{events:?}");
}

/// Any parameters, also changing ones, and any clock: an estimate is a possible value.
pub fn vcrd_is_bounded(api: &Api) {
    let any_params = || {
        let four = || (any_u32(), any_u32(), any_u32(), any_u32());
        (four(), (any_u32(), any_u32(), any_u32(), 0..40u32)).prop_map(|(a, b)| Params {
            threshold_log2_cycles: a.0,
            step_us: a.1,
            initial_ppm: a.2,
            recency_ppm: a.3,
            experiment_ppm: b.0,
            margin_us: b.1,
            ratio_max: b.2,
            values: b.3,
        })
    };
    let steps = prop::collection::vec((any_params(), any_u64(), any_u32(), 0..4u8), 1..40);
    property(800, (any_params(), steps), |(first, steps)| {
        let mut params = first;
        let mut state = api.vcrd_new(&params);
        assert!(!api.vcrd_high(&state, 0));
        for (next, now, draw, change) in steps {
            if change == 0 {
                params = next;
            }
            let before = state;
            let estimate = api.vcrd_at(&mut state, &params, now, draw);
            let values = u64::from(params.values.clamp(1, 32));
            assert!(u64::from(state.estimate) < values);
            assert_eq!(estimate, (u64::from(state.estimate) + 1) * u64::from(params.step_us));
            assert_eq!(estimate, state.estimate_us);
            let limit = 1_000_000 * u64::from(params.ratio_max.clamp(1, 1 << 20));
            for (after, before) in state.propensity_ppm.iter().zip(before.propensity_ppm) {
                assert!(*after <= (before + before / 5 * 6 + limit).min(1 << 41));
            }
        }
    });
    // One value is always chosen, and a quotient by 0 is bounded.
    let params = Params { values: 1, ratio_max: u32::MAX, ..Params::default() };
    let mut state = api.vcrd_new(&params);
    for now in [0, 0, u64::MAX, u64::MAX] {
        assert_eq!(api.vcrd_at(&mut state, &params, now, u32::MAX), 10 * MS);
    }
    assert_eq!(state.high_until_us, u64::MAX);
    let mut state = State { over_us: 0, ..api.vcrd_new(&params) };
    state.events = 2;
    api.vcrd_at(&mut state, &params, 1 << 40, 0);
    assert_eq!(state.propensity_ppm[0], 900_000 + (800_000 << 20));
}

pub fn vcrd_lasts_as_estimated(api: &Api) {
    let params = Params::default();
    let mut state = api.vcrd_new(&params);
    assert!(!api.vcrd_high(&state, 0));
    let lasts = api.vcrd_at(&mut state, &params, 70 * MS, 1 << 30);
    assert_eq!(lasts, 50 * MS);
    assert!(api.vcrd_high(&state, 70 * MS) && api.vcrd_high(&state, 120 * MS - 1));
    assert!(!api.vcrd_high(&state, 120 * MS));
    // An event while it is HIGH restarts the period.
    api.vcrd_at(&mut state, &params, 100 * MS, 0);
    assert_eq!(state.high_until_us, 110 * MS);
    // A clock that ran back stands still.
    let lasts = api.vcrd_at(&mut state, &params, 20 * MS, 0);
    assert_eq!((state.event_us, state.high_until_us), (100 * MS, 100 * MS + lasts));
}

pub fn vcrd_thresholds(api: &Api) {
    let over = |log2, waited| {
        let params = Params { threshold_log2_cycles: log2, ..Params::default() };
        unsafe { (api.vcrd_is_over_threshold)(&params, waited) != 0 }
    };
    // Section 4.2: larger than 2^20 cycles.
    assert!(!over(20, 1 << 20));
    assert!(over(20, (1 << 20) + 1));
    assert!(!over(0, 1) && over(0, 2));
    for log2 in [63, 64, u32::MAX] {
        assert!(!over(log2, 1 << 63) && over(log2, (1 << 63) + 1));
    }
}

pub fn vcrd_params_are_judged(api: &Api) {
    assert_judged!(api.vcrd_params_check, Params:
        threshold_log2_cycles: [64 => 1, 63 => 0],
        values: [0 => 2, 33 => 2, 32 => 0, 1 => 0],
        step_us: [0 => 3],
        initial_ppm: [0 => 4],
        recency_ppm: [1_000_001 => 5, 1_000_000 => 0],
        experiment_ppm: [1_000_001 => 6, 1_000_000 => 0],
        margin_us: [u32::MAX => 0],
        ratio_max: [0 => 8, (1 << 20) + 1 => 8, 1 << 20 => 0]);
}
