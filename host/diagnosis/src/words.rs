// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long vCPUs waited, in the terms of other tools: esxtop's %RDY, %CSTP and %MLMTD, and the steal time
//! that guests show.

use crate::state::{State, Times};
use serde::Serialize;

/// How long vCPUs could run and had no CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    vcpus: u64,
    /// Sum over all vCPUs, in ns, as are the other fields.
    wall: u64,
    ready: Option<u64>,
    limited: Option<u64>,
    costop: Option<u64>,
}

/// In per cent of the wall time of one vCPU. For a VM these are sums over its vCPUs (except
/// `steal_pct`). `None` is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Words {
    /// It could run, and had no CPU: all states `ready:` and `throttled`. esxtop's %RDY.
    pub ready_pct: Option<f64>,
    /// The part of `ready_pct` in which a sibling was on a CPU. esxtop's %CSTP.
    pub costop_pct: Option<f64>,
    /// The part of `ready_pct` in which a quota was used up. esxtop's %MLMTD.
    pub limit_pct: Option<f64>,
    /// The steal time that the guest sees, 0 to 100: the mean of `ready_pct` of the vCPUs.
    pub steal_pct: Option<f64>,
}

impl Waits {
    /// For one vCPU. `costop`: how long it was ready while a sibling was on a CPU, in ns.
    /// `tells_throttled`: whether the times distinguish throttling from other waits. For a vCPU without any
    /// times all is unknown.
    pub fn of(times: &Times, costop: Option<u64>, tells_throttled: bool) -> Waits {
        let limited = times[State::Throttled];
        let ready: u64 = State::ALL.iter().filter(|s| s.is_ready()).map(|s| times[*s]).sum();
        let is_seen = times.total() > 0;
        Waits {
            vcpus: 1,
            wall: times.total(),
            ready: is_seen.then_some(ready + limited),
            limited: (is_seen && tells_throttled).then_some(limited),
            costop: costop.filter(|_| is_seen),
        }
    }

    /// The sum over these vCPUs; a value that is unknown for one is unknown.
    pub fn sum(all: impl IntoIterator<Item = Waits>) -> Waits {
        let add = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        all.into_iter()
            .reduce(|a, b| Waits {
                vcpus: a.vcpus + b.vcpus,
                wall: a.wall + b.wall,
                ready: add(a.ready, b.ready),
                limited: add(a.limited, b.limited),
                costop: add(a.costop, b.costop),
            })
            .unwrap_or_default()
    }

    /// In ns: ready, the part with a sibling on a CPU, and the part over a quota; `None` is
    /// unknown.
    pub fn ns(&self) -> [Option<u64>; 3] {
        [self.ready, self.costop, self.limited]
    }

    pub fn words(&self) -> Words {
        let window = self.wall as f64 / self.vcpus.max(1) as f64;
        let percent = |ns: u64| (window > 0.0).then(|| 100.0 * ns as f64 / window);
        // The part and the whole are not read at the same moment.
        let part = |ns: u64| percent(ns.min(self.ready?));
        Words {
            ready_pct: self.ready.and_then(percent),
            costop_pct: self.costop.and_then(part),
            limit_pct: self.limited.and_then(part),
            steal_pct: self.ready.and_then(percent).map(|sum| sum / self.vcpus.max(1) as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times() -> impl Strategy<Value = Times> {
        prop::collection::vec(0..1_000_000_000u64, State::COUNT)
            .prop_map(|times| <[u64; State::COUNT]>::try_from(times).unwrap().into())
    }

    proptest! {
        #[test]
        fn a_vm_has_the_sum_of_its_vcpus(
            times in times(), costops in prop::collection::vec(0..1_000_000_000u64, 1..9),
        ) {
            // All were watched for the same time.
            let all: Vec<Waits> =
                costops.iter().map(|costop| Waits::of(&times, Some(*costop), true)).collect();
            let vm = Waits::sum(all.clone()).words();
            let sum = |of: fn(&Words) -> Option<f64>| -> f64 {
                all.iter().map(|vcpu| of(&vcpu.words()).unwrap()).sum()
            };
            let is = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-6 * b.max(1.0);
            prop_assert!(is(vm.ready_pct, sum(|words| words.ready_pct)));
            prop_assert!(is(vm.limit_pct, sum(|words| words.limit_pct)));
            prop_assert!(is(vm.steal_pct, sum(|words| words.steal_pct) / all.len() as f64));
            for words in all.iter().map(Waits::words).chain([vm]) {
                let ready = words.ready_pct.unwrap() + 1e-9;
                prop_assert!(words.costop_pct.unwrap() <= ready && words.limit_pct.unwrap() <= ready);
                prop_assert!((0.0..=100.0 + 1e-9).contains(&words.steal_pct.unwrap()));
            }
        }
    }

    #[test]
    fn what_is_unknown_of_one_is_unknown_of_all() {
        let mut times = Times::default();
        (times[State::ReadyVm], times[State::Throttled], times[State::Guest]) = (250, 50, 700);
        let one = Waits::of(&times, Some(100), true);
        let expected = Words {
            ready_pct: Some(30.0),
            costop_pct: Some(10.0),
            limit_pct: Some(5.0),
            steal_pct: Some(30.0),
        };
        assert_eq!(one.words(), expected);
        let both = Waits::sum([one, Waits::of(&times, None, false)]).words();
        let expected = Words {
            ready_pct: Some(60.0),
            costop_pct: None,
            limit_pct: None,
            steal_pct: Some(30.0),
        };
        assert_eq!(both, expected);
        assert_eq!(Waits::sum([]).words(), Words::default());
        let unseen = Waits::of(&Times::default(), Some(0), true);
        for waits in [unseen, Waits::sum([one, unseen])] {
            assert_eq!((waits.words(), waits.ns()), (Words::default(), [None; 3]));
        }
        let text = serde_json::to_value(both).unwrap();
        assert!(text["costop_pct"].is_null() && text["limit_pct"].is_null());
    }
}
