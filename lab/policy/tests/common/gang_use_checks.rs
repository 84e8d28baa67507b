// SPDX-License-Identifier: MIT OR Apache-2.0
//! pCPUs that tasks of the host use (policy/gang.h): they have no turns while that lasts.

use super::{any_u64, property, Api};
use proptest::prelude::*;
use unspin_policy::gang::{Use, TIME_MAX};

const AGAIN_PERCENT: u64 = 6;
const MOST_PERCENT: u64 = 12;
const TURN_MOST_PERCENT: i64 = 25;
const TURNS: i64 = 32;
/// After this many turns, the mean keeps a thousandth of its former value.
const FORGOTTEN: usize = 250;

fn begin(api: &Api, turn: u64) -> Use {
    let mut of = Use { of_host: 7, of_all: 7, used: 1, reserved: [0; 7] };
    unsafe { (api.gang_use_begin)(&mut of, turn) };
    of
}

fn step(api: &Api, of: &mut Use, of_host: i64, turn: u64) -> bool {
    let used = unsafe { (api.gang_use)(of, of_host, turn) };
    assert_eq!(used, of.used);
    assert!(used <= 1);
    used == 1
}

/// Turns, and what tasks of the host have of each, in thousandths.
fn turns() -> impl Strategy<Value = Vec<(u64, i64)>> {
    prop::collection::vec((1_000_000..100_000_000u64, -300..1000i64), 1..80)
}

/// Both means, of at most a quarter of each turn, and the verdict that stays between its two borders.
pub fn gang_use_is_a_mean(api: &Api) {
    property(500, (1_000_000..100_000_000u64, turns()), |(first, turns)| {
        let mut of = begin(api, first);
        let (mut host, mut all, mut used) = (0i64, first as i64, false);
        for (turn, thousandths) in turns {
            let of_host = turn as i64 * thousandths / 1000;
            let counted = of_host.min(turn as i64 * TURN_MOST_PERCENT / 100);
            host += (counted - host) / TURNS;
            all += (turn as i64 - all) / TURNS;
            let percent = |percent: u64| all * percent as i64;
            used =
                host * 100 > percent(MOST_PERCENT) || used && host * 100 >= percent(AGAIN_PERCENT);
            assert_eq!(step(api, &mut of, of_host, turn), used);
            assert_eq!((of.of_host, of.of_all), (host, all));
        }
    });
}

/// At a border itself the verdict stays.
pub fn gang_use_borders_are_exact(api: &Api) {
    for (percent, before, after) in [
        (MOST_PERCENT, false, false),
        (MOST_PERCENT + 1, false, true),
        (AGAIN_PERCENT, true, true),
        (AGAIN_PERCENT - 1, true, false),
    ] {
        let of_host = percent as i64;
        let mut of = Use { of_host, of_all: 100, used: before.into(), ..Use::default() };
        assert_eq!(step(api, &mut of, of_host, 100), after, "{percent} %, {before} before");
    }
}

/// Up to 20 turns that the host takes whole, at the beginning or later, take away no turns. What starts
/// turns and VMs needs a CPU, too.
pub fn gang_use_forgives_a_burst(api: &Api) {
    property(500, (1_000_000..100_000_000u64, 0..50usize, 0..21usize), |(turn, at, burst)| {
        let mut of = begin(api, turn);
        for i in 0..100 {
            let of_host = if (at..at + burst).contains(&i) { turn as i64 } else { 0 };
            assert!(!step(api, &mut of, of_host, turn), "turn {i}");
        }
    });
}

/// Who takes clearly more than the border is seen, less never; and when it is gone, so is that.
pub fn gang_use_sees_a_hog_and_its_end(api: &Api) {
    property(300, (1_000_000..100_000_000u64, 0..=100u64), |(turn, percent)| {
        let mut of = begin(api, turn);
        let mut after = |percent: u64| {
            (0..FORGOTTEN)
                .map(|_| step(api, &mut of, (turn / 100 * percent) as i64, turn))
                .last()
                .unwrap()
        };
        assert_eq!(after(percent), percent > MOST_PERCENT, "{percent} %");
        assert!(after(100));
        assert!(after(AGAIN_PERCENT + 2), "below the upper border it stays");
        assert!(!after(AGAIN_PERCENT - 1));
    });
}

/// Any numbers: a step changes a mean by less than a step may, and nothing wraps.
pub fn gang_use_is_bounded(api: &Api) {
    let numbers = (any_u64(), any_u64(), any_u64(), any_u64());
    property(2000, numbers, |(all, host, of_host, turn)| {
        let before = Use {
            of_host: host as i64,
            of_all: all as i64,
            used: (all & 1) as u8,
            ..Use::default()
        };
        let mut of = before;
        step(api, &mut of, of_host as i64, turn);
        let within = |value: i64| value.clamp(-(TIME_MAX as i64), TIME_MAX as i64);
        let most = 2 * TIME_MAX / TURNS as u64;
        for (now, was) in [(of.of_host, before.of_host), (of.of_all, before.of_all)] {
            assert!((now - within(was)).unsigned_abs() <= most, "{was} became {now}");
        }
        let begun = begin(api, turn);
        assert_eq!((begun.of_host, begun.of_all), (0, turn.min(TIME_MAX) as i64));
    });
}
