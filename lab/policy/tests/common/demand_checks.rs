// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demand for turns (policy/demand.h): looks, holds and HIGH VMs.

use super::{any_u32, any_u64, property, Api};
use proptest::prelude::*;
use unspin_policy::demand::{Host, Params, Vm};

const PARAMS: Params =
    Params { threshold_ppm: 50_000, look_us: 20, hold_us: 100, hold_max_us: 400 };

fn asking(count: usize) -> Vec<Vm> {
    vec![Vm { asks: 1, ..Vm::default() }; count]
}

/// Each VM uses 1000 of CPU time a step of 10 us, and wastes as many as told.
struct Bench<'a> {
    api: &'a Api,
    host: Host,
    vms: Vec<Vm>,
    now_us: u64,
}

impl<'a> Bench<'a> {
    fn new(api: &'a Api, count: usize) -> Bench<'a> {
        let mut bench = Bench { api, host: Host::default(), vms: asking(count), now_us: 1000 };
        bench.step(&vec![0; count]);
        bench
    }

    fn step(&mut self, wasted: &[u64]) -> bool {
        for (vm, wasted) in self.vms.iter_mut().zip(wasted) {
            vm.cpu += 1000;
            vm.wasted += wasted;
        }
        let holds = self.api.demand(&mut self.host, &mut self.vms, &PARAMS, self.now_us);
        self.now_us += 10;
        holds
    }

    fn high(&self) -> Vec<u8> {
        self.vms.iter().map(|vm| vm.high).collect()
    }

    /// How long the present state lasts while VMs waste this much.
    fn lasts_us(&mut self, holds: bool, wasted: &[u64]) -> u64 {
        let from = self.now_us;
        while self.step(wasted) == holds {
            assert!(self.now_us - from < 10_000, "it never ends");
        }
        self.now_us - from
    }
}

pub fn demand_worked_example(api: &Api) {
    let mut bench = Bench::new(api, 4);
    assert!(!bench.step(&[50, 49, 900, 900]), "the look is not over");
    assert!(!bench.step(&[50, 49, 900, 900]), "it is, after 20 us, but one is not enough");
    assert_eq!(bench.high(), [0, 0, 0, 0]);
    assert!(!bench.step(&[50, 49, 900, 0]));
    assert!(bench.step(&[50, 49, 900, 0]), "two are");
    assert_eq!(bench.high(), [1, 0, 1, 0], "5 % and more, both times");
    // Run together they waste nothing, and stay HIGH to the end of the hold.
    assert_eq!(bench.lasts_us(true, &[0, 0, 0, 0]), 100);
    assert_eq!(bench.high(), [0, 0, 0, 0], "nobody is in a look");
}

/// Who was in the hold before needs half of the waste to be in the next one.
pub fn demand_half_is_enough_to_stay(api: &Api) {
    let mut bench = Bench::new(api, 3);
    bench.lasts_us(false, &[100, 100, 25]);
    assert_eq!(bench.high(), [1, 1, 0]);
    bench.lasts_us(true, &[0, 0, 25]);
    assert_eq!(bench.lasts_us(false, &[25, 24, 49]), 20);
    assert_eq!(bench.high(), [1, 0, 0]);
    bench.lasts_us(true, &[0, 25, 49]);
    bench.lasts_us(false, &[25, 49, 49]);
    assert_eq!(bench.high(), [1, 0, 0], "who left needs all of it again");
}

/// The same VMs again double the hold, up to its bound; other VMs, or fewer, reset it.
pub fn demand_holds_grow(api: &Api) {
    let mut bench = Bench::new(api, 2);
    for (look, hold) in [(40, 100), (20, 200), (20, 400)] {
        assert_eq!(bench.lasts_us(false, &[100, 0]), look, "who was HIGH needs one look");
        assert_eq!(bench.lasts_us(true, &[0, 0]), hold);
    }
    assert_eq!(bench.lasts_us(false, &[100, 0]), 20);
    for _ in 0..37 {
        assert!(bench.step(&[0, 0]));
    }
    assert_eq!(bench.lasts_us(true, &[0, 100]), 30, "one begins in the hold's last look");
    assert_eq!(bench.lasts_us(false, &[100, 100]), 20);
    assert_eq!(bench.lasts_us(true, &[0, 0]), 100, "one more");
    assert_eq!(bench.lasts_us(false, &[0, 100]), 20);
    assert_eq!(bench.lasts_us(true, &[0, 0]), 100, "one less");
    for _ in 0..10 {
        assert!(!bench.step(&[0, 0]), "nobody spins: a look follows a look");
    }
    assert!(bench.lasts_us(false, &[0, 100]) <= 60);
    assert_eq!(bench.lasts_us(true, &[0, 0]), 100, "after that it starts anew");
}

/// A VM that begins to spin in a hold joins it, also a new VM; none leaves before its end.
pub fn demand_is_joined(api: &Api) {
    let mut bench = Bench::new(api, 2);
    bench.lasts_us(false, &[100, 0]);
    assert_eq!(bench.lasts_us(true, &[0, 100]), 100, "joined or not, a hold lasts");
    assert_eq!(bench.lasts_us(false, &[100, 100]), 20);
    assert_eq!(bench.lasts_us(true, &[0, 0]), 200, "who joined was in the hold before");

    let mut bench = Bench::new(api, 2);
    bench.lasts_us(false, &[100, 0]);
    assert_eq!(bench.high(), [1, 0]);
    for high in [[1, 0], [1, 1]] {
        bench.step(&[0, 100]);
        bench.step(&[0, 100]);
        assert_eq!(bench.high(), high, "two looks");
    }
    bench.vms.push(Vm { asks: 1, wasted: 1 << 40, cpu: 1 << 41, ..Vm::default() });
    for _ in 0..5 {
        bench.step(&[0, 0, 0]);
        assert_eq!(bench.high(), [1, 1, 0], "what it wasted before does not count");
    }

    let mut bench = Bench::new(api, 2);
    bench.lasts_us(false, &[100, 100]);
    bench.vms[0].asks = 0;
    bench.vms.push(Vm { asks: 1, ..Vm::default() });
    for _ in 0..4 {
        bench.step(&[100, 0, 100]);
        assert_eq!(bench.high(), [0, 1, 0], "who no longer asks goes at once");
    }
    bench.step(&[100, 0, 100]);
    assert_eq!(bench.high(), [0, 1, 1], "one that is new joins");
}

pub fn demand_is_of_those_who_ask(api: &Api) {
    let vm = (any_u64(), any_u64(), 0..2u8).prop_map(|(wasted, cpu, asks)| (wasted, cpu, asks));
    let steps = prop::collection::vec((prop::collection::vec(vm, 3), 0..50u64), 1..40);
    property(600, (steps, any_u32(), any_u32()), |(steps, threshold_ppm, look_us)| {
        let params = Params { threshold_ppm, look_us, ..PARAMS };
        let (mut host, mut vms, mut now) = (Host::default(), asking(3), 5);
        for (changes, passed) in steps {
            for (vm, (wasted, cpu, asks)) in vms.iter_mut().zip(changes) {
                (vm.wasted, vm.cpu, vm.asks) = (wasted, cpu, asks);
            }
            now += passed;
            let holds = api.demand(&mut host, &mut vms, &params, now);
            assert!(vms.iter().all(|vm| vm.high == 0 || (holds && vm.asks == 1)), "{vms:?}");
            assert!(!holds || host.until_us > now, "a hold that is over");
            assert!((PARAMS.hold_us..=PARAMS.hold_max_us).contains(&host.held_us) || !holds);
        }
    });
}

/// By the exact share, where the numbers are large, too.
pub fn demand_threshold_is_exact(api: &Api) {
    let input = (1..1_000_000u32, 1..1u64 << 40);
    property(600, input, |(threshold_ppm, parts)| {
        let params = Params { threshold_ppm, ..PARAMS };
        for (less, high) in [(0, 1), (1, 0)] {
            let (mut host, mut vms) = (Host::default(), asking(1));
            api.demand(&mut host, &mut vms, &params, 1);
            for look in 1..=2 {
                vms[0].cpu += parts * 1_000_000;
                vms[0].wasted += parts * u64::from(threshold_ppm) - less;
                api.demand(&mut host, &mut vms, &params, 1000 * look);
            }
            assert_eq!(vms[0].high, high, "{vms:?}");
        }
    });
}

pub fn demand_params_are_judged(api: &Api) {
    let params = (any_u32(), any_u32(), any_u32(), any_u32());
    property(600, params, |(threshold_ppm, look_us, hold_us, hold_max_us)| {
        let params = Params { threshold_ppm, look_us, hold_us, hold_max_us };
        let wrong = [
            !(1..=1_000_000).contains(&threshold_ppm),
            look_us == 0,
            hold_us == 0,
            hold_max_us < hold_us,
        ];
        let first = wrong.iter().position(|w| *w).map_or(0, |at| at as i32 + 1);
        let judged = unsafe { (api.demand_params_check)(&params) };
        assert_eq!(judged, first, "{params:?}");
    });
    assert_eq!(Params::default().check(), Ok(()));
}
