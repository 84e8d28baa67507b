// SPDX-License-Identifier: MIT OR Apache-2.0
//! Algorithm 1 (section 3.1.4) and its metric (3.1.3).

use super::{any_u32, any_u64, property, Api};
use proptest::prelude::*;
use unspin_policy::aple::{Epoch, Params};

/// An epoch of that inefficiency.
fn epoch(ppm: u64) -> Epoch {
    Epoch { ple_exits: 1000, spin_cycles: ppm, switch_cycles: 0, cpu_cycles: 1_000_000 }
}

/// The same, and as wasteful where spinning between windows is charged.
fn handling(ppm: u64) -> Epoch {
    Epoch { ple_exits: 0, spin_cycles: 0, switch_cycles: ppm, cpu_cycles: 1_000_000 }
}

/// An epoch with that many exits at a window, of so many cycles each to handle.
fn exits(ple_exits: u64, window: u64, handling: u64) -> Epoch {
    Epoch {
        ple_exits,
        spin_cycles: ple_exits * window,
        switch_cycles: ple_exits * handling,
        cpu_cycles: 1 << 32,
    }
}

/// A workload that wastes least at `optimum`, and the windows it was given.
fn windows_for(api: &Api, params: &Params, optimum: u32, epochs: usize) -> Vec<u32> {
    let mut state = api.aple_new(params);
    let mut window = state.window_cycles;
    let mut windows = vec![window];
    for _ in 0..epochs {
        window = api.epoch_end(&mut state, params, &epoch(window.abs_diff(optimum).into()));
        assert_eq!(window, state.window_cycles);
        windows.push(window);
    }
    assert_eq!(state.epochs, epochs as u64);
    assert_eq!(state.rounds, epochs as u64 / 3);
    windows
}

pub fn algorithm_1_rounds(api: &Api) {
    // Each round tries Td, Td + δ, Td − δ and moves Td by at most δ.
    let windows = windows_for(api, &Params::paper(), 10_500, 9);
    assert_eq!(windows, [8192, 9216, 7168, 9216, 10240, 8192, 10240, 11264, 9216, 10240]);
    let windows = windows_for(api, &Params::paper(), 4096, 15);
    assert_eq!(windows[12..], [4096, 5120, 4096, 4096]);
    // The stretch to section 4.3's 12,000 cycles takes four rounds.
    let windows = windows_for(api, &Params::paper(), 12_000, 30);
    assert_eq!(windows[12..15], [12288, 13312, 11264]);
    assert_eq!(windows[27..30], [12288, 13312, 11264]);
    // The inefficiency of every epoch is kept until the next.
    let params = Params::paper();
    let mut state = api.aple_new(&params);
    api.epoch_end(&mut state, &params, &epoch(7));
    api.epoch_end(&mut state, &params, &epoch(9));
    assert_eq!((state.best_ppm, state.last_ppm, state.best_cycles), (7, 9, 8192));
}

/// A workload that has that many PLE exits with a window, of that many cycles each to handle: where the window ends
/// after 100 rounds, from each of the paper's initial windows.
fn ends(api: &Api, params: &Params, handling: u64, count: fn(u32) -> u64) -> [u32; 4] {
    [4096, 8192, 16_384, 32_768].map(|window_init_cycles| {
        let params = Params { window_init_cycles, ..*params };
        let mut state = api.aple_new(&params);
        for _ in 0..300 {
            let window = state.window_cycles;
            api.epoch_end(&mut state, &params, &exits(count(window), window.into(), handling));
        }
        state.desired_cycles
    })
}

pub fn spinning_between_windows_is_charged(api: &Api) {
    let adapts = Params::default();
    let all = |ends: [u32; 4], range: std::ops::RangeInclusive<u32>| {
        assert!(ends.iter().all(|end| range.contains(end)), "{ends:?} outside {range:?}");
    };
    // However long a vCPU spins, an exit should come when the spin has taken what the exit takes.
    let long: fn(u32) -> u64 = |window| 40_000_000 / u64::from(window);
    all(ends(api, &adapts, 6000, long), 5000..=7000);
    all(ends(api, &adapts, 20_000, long), 19_000..=21_000);
    // For the paper's measure all windows cost the same there, but for the exits, so the longest is best.
    all(ends(api, &Params::paper(), 6000, long), 31_744..=32_768);
    all(ends(api, &Params { delta_max_cycles: 0, ..adapts }, 6000, long), 31_744..=32_768);
    // An exit that comes as often with every window is best early.
    all(ends(api, &adapts, 6000, |_| 10_000), 4096..=4096);
    // Spins of 6000 cycles are shorter than what they take up to an exit and with it.
    all(ends(api, &adapts, 6000, |window| if window < 6000 { 10_000 } else { 0 }), 6000..=32_768);
    // No exits tell nothing.
    assert_eq!(ends(api, &adapts, 6000, |_| 0), [4096, 8192, 16_384, 32_768]);
}

/// Where one round of the default APLE ends. It tries 8192, 16,384 and 4096.
fn after(api: &Api, round: [Epoch; 3]) -> u32 {
    let params = Params::default();
    let mut state = api.aple_new(&params);
    for epoch in round {
        api.epoch_end(&mut state, &params, &epoch);
    }
    state.desired_cycles
}

pub fn all_windows_of_a_round_are_compared_with_one(api: &Api) {
    // Over the whole distance from 16,384 down to 4096 the mean of both would count too much.
    assert_eq!(
        after(api, [exits(1000, 8192, 6000), exits(0, 0, 6000), exits(10_000, 4096, 6000)]),
        16_384
    );
    assert_eq!(
        after(api, [exits(1000, 8192, 6000), exits(900, 16_384, 6000), exits(1000, 4096, 6000)]),
        4096
    );
    assert_eq!(
        after(api, [exits(1000, 8192, 6000), exits(900, 16_384, 6000), exits(2100, 4096, 6000)]),
        8192
    );
}

pub fn windows_in_force_count(api: &Api) {
    // Of vCPUs that have another window than the VM's, whichever that is, nothing is learnt.
    assert_eq!(after(api, [20_000; 3].map(|window| exits(1000, window, 6000))), 8192);
}

pub fn epochs_without_cpu_time_are_not_best(api: &Api) {
    assert_eq!(after(api, [Epoch::default(); 3]), 8192);
    let none = Epoch { cpu_cycles: 0, ..exits(1000, 4096, 6000) };
    assert_eq!(after(api, [exits(1000, 8192, 6000), exits(1000, 16_384, 6000), none]), 8192);
}

pub fn huge_spinning_is_bounded(api: &Api) {
    let huge =
        Epoch { ple_exits: u64::MAX, spin_cycles: u64::MAX, switch_cycles: 0, cpu_cycles: 1 };
    let longer = Epoch { ple_exits: 1, ..huge };
    assert_eq!(after(api, [huge, longer, huge]), 8192);
}

pub fn algorithm_1_stops_at_the_bounds(api: &Api) {
    let params = Params::paper();
    let windows = windows_for(api, &params, u32::MAX, 90);
    assert_eq!(windows[87..], [32768, 32768, 31744, 32768]);
    let windows = windows_for(api, &params, 0, 90);
    assert_eq!(windows[87..], [4096, 5120, 4096, 4096]);
    // A step that leaves the range on both sides.
    let wide = Params { delta_cycles: 40_000, ..params };
    let windows = windows_for(api, &wide, 8192, 3);
    assert_eq!(windows, [8192, 32768, 4096, 8192]);
}

pub fn ties_keep_the_epoch_tried_first(api: &Api) {
    // Its first step is the paper's.
    let adapts = Params { delta_cycles: 1023, ..Params::paper() };
    type Waste = fn(u64) -> Epoch;
    let measures = [(Params::paper(), epoch as Waste), (adapts, handling)];
    for (ppm, td) in [([5, 5, 5], 8192), ([5, 4, 4], 9216), ([5, 6, 5], 8192), ([5, 5, 4], 7168)] {
        for (params, epoch) in &measures {
            let mut state = api.aple_new(params);
            for ppm in ppm {
                api.epoch_end(&mut state, params, &epoch(ppm));
            }
            assert_eq!(state.desired_cycles, td, "after {ppm:?}");
        }
    }
}

pub fn delta_adapts(api: &Api) {
    // One optimum a round; the steps from before the first round on, and where it ended.
    let steps_for = |params: &Params, optima: &[u32]| {
        let mut state = api.aple_new(params);
        let mut steps = vec![state.step_cycles];
        for &optimum in optima {
            for _ in 0..3 {
                let wasted = state.window_cycles.abs_diff(optimum).into();
                api.epoch_end(&mut state, params, &handling(wasted));
            }
            steps.push(state.step_cycles);
        }
        (steps, state.desired_cycles)
    };
    let params = Params::default();
    // It starts at the largest step, and halves when a round stays where it was.
    assert_eq!(steps_for(&params, &[8192; 5]), (vec![8192, 4096, 2048, 1024, 1024, 1024], 8192));
    // A first move is no direction yet; a second one the same way is, and doubles.
    let (steps, desired) = steps_for(&params, &[8192, 8192, 8192, 30_000, 30_000, 30_000, 30_000]);
    assert_eq!(steps[3..], [1024, 1024, 2048, 4096, 8192]);
    assert_eq!(desired, 8192 + 1024 + 1024 + 2048 + 4096);
    // Turning back halves.
    assert_eq!(steps_for(&params, &[30_000, 4096]).0, [8192, 8192, 4096]);
    // Far from T0 it is there in a third of the rounds that steps of 1024 take.
    let (_, fast) = steps_for(&params, &[28_000; 7]);
    let (_, slow) = steps_for(&Params::paper(), &[28_000; 7]);
    assert!(fast.abs_diff(28_000) <= 1024, "{fast}");
    assert_eq!(slow, 8192 + 7 * 1024);
    // A largest step at or below delta is the paper's.
    for delta_max_cycles in [0, 1, 1023, 1024] {
        let params = Params { delta_max_cycles, ..params };
        assert_eq!(steps_for(&params, &[28_000; 7]), steps_for(&Params::paper(), &[28_000; 7]));
    }
}

fn any_params() -> impl Strategy<Value = Params> {
    (any_u32(), any_u32(), any_u32(), any_u32(), any_u32(), any_u32()).prop_map(
        |(init, a, b, delta, delta_max, exits)| Params {
            window_init_cycles: init,
            window_min_cycles: a.min(b),
            window_max_cycles: a.max(b),
            delta_cycles: delta,
            epoch_ple_exits: exits,
            delta_max_cycles: delta_max,
            epoch_min_us: 0,
        },
    )
}

fn any_epoch() -> impl Strategy<Value = Epoch> {
    (any_u64(), any_u64(), any_u64(), any_u64()).prop_map(|(exits, spin, switch, cpu)| Epoch {
        ple_exits: exits,
        spin_cycles: spin,
        switch_cycles: switch,
        cpu_cycles: cpu,
    })
}

pub fn windows_stay_in_bounds(api: &Api) {
    let steps = prop::collection::vec((any_params(), any_epoch(), 0..4u8), 1..20);
    property(600, (any_params(), steps), |(first, steps)| {
        let mut params = first;
        let mut state = api.aple_new(&params);
        let range = params.window_min_cycles..=params.window_max_cycles;
        assert!(range.contains(&state.window_cycles), "initial {state:?}");
        for (next, epoch, change) in steps {
            if change == 0 {
                params = next;
            }
            let before = state;
            let window = api.epoch_end(&mut state, &params, &epoch);
            let range = params.window_min_cycles..=params.window_max_cycles;
            assert!(range.contains(&window), "{window} outside {range:?}");
            assert!(range.contains(&state.desired_cycles), "Td outside {range:?}");
            assert_eq!(window, state.window_cycles);
            assert_eq!(state.phase, (before.phase + 1) % 3);
            let delta_max = match params.delta_cycles {
                0 => 0,
                delta => delta.max(params.delta_max_cycles),
            };
            assert!(state.step_cycles <= delta_max && state.step_cycles >= params.delta_cycles);
            assert!(window.abs_diff(state.desired_cycles) <= state.step_cycles);
        }
    });
    // Bounds that contradict each other leave the upper one.
    let odd = Params { window_min_cycles: 9, window_max_cycles: 5, ..Params::default() };
    let mut state = api.aple_new(&odd);
    assert_eq!(state.window_cycles, 5);
    assert_eq!(api.epoch_end(&mut state, &odd, &epoch(1)), 5);
}

pub fn delta_0_keeps_the_window(api: &Api) {
    let fixed = Params { delta_cycles: 0, ..Params::default() };
    assert!(windows_for(api, &fixed, 20_000, 30).iter().all(|&window| window == 8192));
    let fixed = Params::fixed(700);
    assert_eq!(unsafe { (api.aple_params_check)(&fixed) }, 0);
    assert!(windows_for(api, &fixed, 20_000, 30).iter().all(|&window| window == 700));
    // Set to 0 in the middle of a round, far from T0: back to T0 at once.
    let params = Params::default();
    let mut state = api.aple_new(&params);
    for ppm in [9, 1, 9, 9] {
        api.epoch_end(&mut state, &params, &handling(ppm));
    }
    let fixed = Params { delta_cycles: 0, ..params };
    for _ in 0..7 {
        assert_eq!(api.epoch_end(&mut state, &fixed, &epoch(3)), 8192);
    }
}

/// Doubled up to the maximum or KVM's window, from any window and between any bounds; kept where delta is 0.
pub fn complete_vms_spin_longer(api: &Api) {
    let params = Params::default();
    let mut window = params.window_min_cycles;
    let grown = std::array::from_fn::<u32, 5, _>(|_| {
        window = api.window_complete(&params, window, 4096);
        window
    });
    assert_eq!(grown, [8192, 16384, 32768, 32768, 32768]);
    assert_eq!(
        [32768, 65536, 120_000].map(|window| api.window_complete(&params, window, 120_000)),
        [65536, 120_000, 120_000]
    );
    assert_eq!(api.window_complete(&Params { delta_cycles: 0, ..params }, 5000, 120_000), 5000);
    assert_eq!(api.window_complete(&Params::fixed(700), 700, 120_000), 700);
    let input = (any_u32(), any_u32(), any_u32(), any_u32(), any_u32());
    property(2000, input, |(min, max, delta, window, kvm)| {
        let params = Params {
            window_min_cycles: min,
            window_max_cycles: max,
            delta_cycles: delta,
            ..Params::default()
        };
        let twice = u64::from(window) * if delta == 0 { 1 } else { 2 };
        let most = if delta == 0 { max } else { max.max(kvm) };
        let expected = twice.clamp(min.min(most).into(), most.into());
        assert_eq!(u64::from(api.window_complete(&params, window, kvm)), expected);
    });
}

/// The definition, in numbers that cannot overflow.
fn exact_ppm(epoch: &Epoch) -> u64 {
    let wasted = u128::from(epoch.spin_cycles.saturating_add(epoch.switch_cycles));
    match (wasted, epoch.cpu_cycles) {
        (0, _) => 0,
        (_, 0) => Epoch::PPM_MAX,
        (wasted, cpu) => {
            let ppm = wasted * 1_000_000 / u128::from(cpu);
            u64::try_from(ppm).unwrap_or(u64::MAX).min(Epoch::PPM_MAX)
        }
    }
}

pub fn inefficiency_is_exact(api: &Api) {
    property(10_000, any_epoch(), |epoch| {
        assert_eq!(api.ppm(&epoch), exact_ppm(&epoch), "{epoch:?}");
    });
    // The paper's scale: 1000 exits at 8192 cycles, 3.3 microseconds each to handle.
    let paper = Epoch {
        ple_exits: 1000,
        spin_cycles: 8_192_000,
        switch_cycles: 7_920_000,
        cpu_cycles: 161_120_000,
    };
    assert_eq!(api.ppm(&paper), 100_000);
    for cpu_cycles in [1, 2, 3, 1 << 32, u64::MAX - 1, u64::MAX] {
        for spin_cycles in [0, 1, u64::MAX / 2, u64::MAX - 2, u64::MAX - 1, u64::MAX] {
            for switch_cycles in [0, 1, u64::MAX] {
                let epoch = Epoch { ple_exits: 0, spin_cycles, switch_cycles, cpu_cycles };
                assert_eq!(api.ppm(&epoch), exact_ppm(&epoch), "{epoch:?}");
            }
        }
    }
}

pub fn inefficiency_without_cpu_time(api: &Api) {
    let mut epoch = Epoch { ple_exits: 1000, ..Epoch::default() };
    assert_eq!(api.ppm(&epoch), 0);
    epoch.switch_cycles = 1;
    assert_eq!(api.ppm(&epoch), Epoch::PPM_MAX);
    epoch.cpu_cycles = 1;
    assert_eq!(api.ppm(&epoch), 1_000_000);
    epoch.switch_cycles = (1 << 32) - 1;
    assert_eq!(api.ppm(&epoch), Epoch::PPM_MAX - 1_000_000);
    epoch.switch_cycles = 1 << 32;
    assert_eq!(api.ppm(&epoch), Epoch::PPM_MAX);
    epoch.switch_cycles = u64::MAX;
    assert_eq!(api.ppm(&epoch), Epoch::PPM_MAX);
}

pub fn params_are_judged(api: &Api) {
    assert_judged!(api.aple_params_check, Params:
        window_init_cycles: [4095 => 1, 32769 => 1, 4096 => 0, 32768 => 0],
        window_min_cycles: [0 => 2],
        window_max_cycles: [4095 => 3],
        delta_cycles: [32769 => 4, 32768 => 0],
        epoch_ple_exits: [0 => 5, 1 => 0],
        delta_max_cycles: [32769 => 6, 32768 => 0, 0 => 0]);
}
