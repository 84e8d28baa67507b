// SPDX-License-Identifier: MIT OR Apache-2.0
//! What weights and slices a VM's vCPUs get, period by period: what they did goes to `policy/asym`, and its
//! answer becomes these. Nothing is read or written here.
//!
//! Shan, "High Performance Cloud Computing on Multicore Computers", dissertation, New Jersey Institute of
//! Technology, sections 5.4.1 and 5.4.2. Weights within the VM keep their sum. That the VM as a whole gets
//! what is due to it is ours: see [`Due`].

use unspin_diagnosis::State;
use unspin_probe::{Seen, NUMBERS};
use unspin_shape::alike;
use unspin_shape::asym::{self, Params, Vcpu};
use unspin_shape::due::{Due, Got};
use unspin_shape::lasting::Lasting;

/// What the kernel takes as `cpu.weight`.
const WEIGHTS: std::ops::RangeInclusive<u64> = 1..=10_000;
/// Weights and slices of which none differs by more than this factor from what is set stay: to write them
/// costs, too. A latency goes up and down by factors of two.
pub const WEIGHTS_FAR: f64 = 1.1;
pub const SLICES_FAR: f64 = 2.0;
/// The same of a VM's own weight: what the VM gets beside an equal one changes by half of it.
pub const WHOLE_FAR: f64 = 1.02;

/// What a vCPU did in a period, in the mean of so many.
fn got_of(seen: &Seen, periods: u32) -> Got {
    let sum = |is: fn(State) -> bool| {
        seen.times.spent().filter(|(state, _)| is(*state)).map(|(_, ns)| ns).sum::<u64>()
    };
    let mean_ns = |ns: u64| ns / u64::from(periods.max(1));
    let (on_cpu_ns, waited_ns) = (mean_ns(sum(State::is_on_cpu)), mean_ns(sum(State::is_ready)));
    Got { on_cpu_ns, waited_ns, wall_ns: mean_ns(seen.times.total()) }
}

/// What is adapted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// vCPUs' parts of the VM's CPU time (5.4.1).
    pub time: bool,
    /// How soon they get a CPU when they wake up (5.4.2).
    pub latency: bool,
    /// On which CPU each is (5.4.3, [`super::apart`]).
    pub resolver: bool,
}

/// What is decided of a vCPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub weight: u64,
    /// `None`: latency is not adapted.
    pub slice_ns: Option<u64>,
    /// Its slice follows its latency: it woke up.
    pub woke: bool,
    /// What it was given in the period that ended, what it used of that, and what it is given next, in ns.
    pub given_ns: u64,
    pub used_ns: u64,
    pub next_ns: u64,
    /// What it needs that lasts.
    pub need: Lasting,
    pub ready: bool,
    /// How soon it is to have a CPU, in us, and how long it waited for one in the period, in ns.
    pub latency_us: u32,
    pub waited_ns: u64,
}

/// How a VM is set before anything is changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Own {
    /// Of its vCPUs, and of the VM.
    pub weights: Vec<u64>,
    pub whole: u64,
    /// What is the VM's part of the host's CPUs by its weight, if all VMs want what they can get.
    pub due_cpus: f64,
    /// Of its vCPUs; none where latency is not adapted.
    pub slices_ns: Vec<u64>,
}

/// A VM: its vCPUs, its weights before they are changed, and what it got.
#[derive(Debug)]
pub struct Shaper {
    parts: Parts,
    params: Params,
    vcpus: Vec<Vcpu>,
    /// What each needs that lasts: weights follow it.
    needs: Vec<Lasting>,
    own: Own,
    /// What it gets, and what its own weight becomes by that.
    pub due: Due,
}

impl Shaper {
    pub fn new(mut parts: Parts, own: Own) -> Shaper {
        let params = Params::default();
        let vcpus = own.weights.iter().map(|_| Vcpu::new(&params, 0)).collect();
        let needs = vec![Lasting::default(); own.weights.len()];
        parts.latency &= !own.slices_ns.is_empty();
        let due = Due::new(own.due_cpus);
        Shaper { parts, params, vcpus, needs, own, due }
    }

    pub fn own(&self) -> &Own {
        &self.own
    }

    /// So many periods have ended in which each vCPU did this: what each gets in the next. `is_own`: the
    /// VM had its own weights in them.
    pub fn period(&mut self, seen: &[Seen], periods: u32, is_own: bool) -> Vec<Decision> {
        let each: Vec<Got> = seen.iter().map(|seen| got_of(seen, periods)).collect();
        let got = Got::together(&each);
        self.due.period(&got, is_own);
        // Nothing was given out before the first period: alike.
        let due_ns = each.iter().map(Got::due_ns).sum();
        let even_ns = due_ns / self.vcpus.len().max(1) as u64;
        let is_first = self.vcpus.iter().all(|vcpu| vcpu.allocated_ns == 0);
        for ((vcpu, seen), got) in self.vcpus.iter_mut().zip(seen).zip(&each) {
            vcpu.consumed_ns = got.on_cpu_ns;
            vcpu.ready = seen.ready.into();
            vcpu.allocated_ns = if is_first { even_ns } else { vcpu.allocated_ns };
        }
        let given: Vec<u64> = self.vcpus.iter().map(|vcpu| vcpu.allocated_ns).collect();
        if self.parts.latency {
            self.wakers(seen);
            asym::latency(&mut self.vcpus, &self.params);
        }
        asym::allocate(&mut self.vcpus, &self.params, due_ns, 0);
        let each_need = self.needs.iter_mut().zip(&self.vcpus);
        each_need.for_each(|(need, vcpu)| need.period(vcpu.allocated_ns));
        let weights = self.weights();
        let needs: Vec<Lasting> = alike::counted(&self.needs).collect();
        let decision = |(index, vcpu): (usize, &Vcpu)| Decision {
            weight: weights[index],
            slice_ns: self.slice_ns(index, &seen[index]),
            woke: seen[index].wakes > 0,
            given_ns: given[index],
            used_ns: vcpu.consumed_ns,
            next_ns: vcpu.allocated_ns,
            need: needs[index],
            ready: vcpu.ready == 1,
            latency_us: vcpu.latency_us,
            waited_ns: each[index].waited_ns,
        };
        self.vcpus.iter().enumerate().take(seen.len()).map(decision).collect()
    }

    /// The latency decides how soon a vCPU runs that wakes up. One that did not wake up would only be
    /// switched more often by a short slice.
    fn slice_ns(&self, index: usize, seen: &Seen) -> Option<u64> {
        let own = *self.own.slices_ns.get(index).filter(|_| self.parts.latency)?;
        Some(match seen.wakes {
            0 => own,
            _ => u64::from(self.vcpus[index].latency_us) * 1000,
        })
    }

    /// Which vCPU woke which, by their order here.
    fn wakers(&mut self, seen: &[Seen]) {
        let index_of = |number: u32| seen.iter().position(|seen| seen.number == number);
        for (vcpu, seen) in self.vcpus.iter_mut().zip(seen) {
            let numbers = (0..NUMBERS).filter(|number| seen.wakers >> number & 1 == 1);
            let indices = numbers.filter_map(index_of).filter(|index| *index < 64);
            vcpu.wakers = indices.fold(0, |mask, index| mask | 1 << index);
        }
    }

    /// The sum of its own weights, shared out as the vCPUs need CPU time; as it is where they are alike.
    fn weights(&self) -> Vec<u64> {
        let sum: u64 = self.own.weights.iter().sum();
        let all_ns: f64 = self.needs.iter().map(Lasting::ns).sum();
        if all_ns == 0.0 || !self.parts.time || alike::need_alike(&self.needs) {
            return self.own.weights.clone();
        }
        let of = |need: &Lasting| {
            let exact = sum as f64 * need.ns() / all_ns;
            (exact.round() as u64).clamp(*WEIGHTS.start(), *WEIGHTS.end())
        };
        self.needs.iter().map(of).collect()
    }

    /// The VM's own weight after it is corrected by what the VM got since this was called last.
    pub fn correct(&mut self) -> u64 {
        if self.parts.time {
            self.due.correct();
        }
        self.whole()
    }

    /// The VM's own weight as it is corrected now.
    pub fn whole(&self) -> u64 {
        self.due.raised(self.own.whole).clamp(*WEIGHTS.start(), *WEIGHTS.end())
    }
}

/// Whether values are so different from those that are set that it is worth setting them.
pub fn differ(are: &[u64], wanted: &[u64], far: f64) -> bool {
    let is_far = |(is, wanted): (&u64, &u64)| *is.max(wanted) as f64 > far * *is.min(wanted) as f64;
    are.iter().zip(wanted).any(is_far)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD_NS: u64 = 80_000_000;
    const BOTH: Parts = Parts { time: true, latency: true, resolver: false };
    const SLICE_NS: u64 = 3_000_000;

    fn own(weights: Vec<u64>, whole: u64) -> Own {
        let (due_cpus, slices_ns) = (weights.len() as f64 / 2.0, vec![SLICE_NS; weights.len()]);
        Own { weights, whole, due_cpus, slices_ns }
    }

    /// A vCPU that ran for a part of the period, waited for a part, and is ready or not at its end.
    fn seen(ran: f64, waited: f64, ready: bool) -> Seen {
        let mut seen = Seen { ready, ..Seen::default() };
        let ns = |part: f64| (part * PERIOD_NS as f64) as u64;
        seen.times[State::Guest] = ns(ran);
        seen.times[State::ReadyVm] = ns(waited);
        seen.times[State::Halted] = PERIOD_NS - ns(ran) - ns(waited);
        seen
    }

    #[test]
    fn weights_go_to_those_who_could_go_on() {
        let mut vm = Shaper::new(BOTH, own(vec![100; 2], 100));
        let decided = vm.period(&[seen(0.5, 0.5, true), seen(0.25, 0.0, false)], 1, true);
        // Half of its 80 ms is due to the first, and all to the second: 120 ms by demands of 66 and 20 ms.
        assert_eq!(decided.iter().map(|d| d.weight).collect::<Vec<_>>(), [153, 47]);
        assert_eq!(decided[0].next_ns / 1000, 92_093);
        assert_eq!((decided[0].given_ns, decided[0].used_ns), (60_000_000, 40_000_000));
        let mut asleep = || {
            let decided = vm.period(&[seen(0.0, 0.0, false), seen(0.0, 0.0, false)], 1, true);
            decided.iter().map(|d| d.weight).collect::<Vec<_>>()
        };
        assert_eq!(asleep(), [137, 63], "one period counts a quarter");
        (0..30).for_each(|_| drop(asleep()));
        assert_eq!(asleep(), [100, 100]);
        assert!(differ(&[100, 100], &[100, 111], WEIGHTS_FAR));
        assert!(!differ(&[100, 100], &[110, 91], WEIGHTS_FAR));
    }

    #[test]
    fn who_is_late_gets_shorter_slices_and_then_those_that_woke_it() {
        let mut vm = Shaper::new(BOTH, own(vec![100; 2], 100));
        // The first can go on, and gets half of its part; the second has used all of it, and sleeps.
        let late = |number, wakers| Seen { number, wakers, wakes: 1, ..seen(0.25, 0.5, true) };
        let asleep = |number| Seen { number, wakes: 1, ..seen(0.25, 0.0, false) };
        let mut slices = Vec::new();
        for _ in 0..8 {
            let vcpus = [late(5, 1 << 3), asleep(3)];
            let decided = vm.period(&vcpus, 1, false);
            slices.push((decided[0].slice_ns.unwrap() / 1000, decided[1].slice_ns.unwrap() / 1000));
        }
        assert!(slices.windows(2).all(|pair| pair[1].0 <= pair[0].0), "{slices:?}");
        assert_eq!(slices.last().unwrap().0, 250);
        let lowest = slices.iter().position(|(first, _)| *first == 250).unwrap();
        assert!(slices[lowest + 1].1 < slices[lowest].1, "its waker follows: {slices:?}");
        let mut plain = Shaper::new(Parts { latency: false, ..BOTH }, own(vec![100; 2], 100));
        assert_eq!(plain.period(&[late(0, 0), asleep(1)], 1, false)[0].slice_ns, None);
        let awake = [Seen { wakes: 0, ..late(5, 0) }, asleep(3)];
        assert_eq!(vm.period(&awake, 1, false)[0].slice_ns, Some(SLICE_NS), "it did not wake up");
    }

    /// vCPUs on a CPU each, beside an equal VM: on each CPU the two VMs' weights are shared out by what
    /// each has there, as the kernel does it.
    fn beside_an_equal(weights: &[u64], whole: u64) -> Vec<Seen> {
        let sum: u64 = weights.iter().sum();
        let beside = 100.0 / weights.len() as f64;
        let of = |weight: &u64| {
            let here = whole as f64 * *weight as f64 / sum as f64;
            let share = here / (here + beside);
            seen(share, 1.0 - share, true)
        };
        weights.iter().map(of).collect()
    }

    #[test]
    fn what_the_vm_gets_stays() {
        let cpus = |weights, whole| {
            let each: Vec<Got> =
                beside_an_equal(weights, whole).iter().map(|seen| got_of(seen, 1)).collect();
            Got::together(&each).cpus()
        };
        assert!((cpus(&[100; 4], 100) - 2.0).abs() < 0.001);
        let uneven = [229, 57, 57, 57];
        assert!((cpus(&uneven, 100) - 1.79).abs() < 0.005, "{}", cpus(&uneven, 100));
        let mut vm = Shaper::new(BOTH, own(vec![100; 4], 100));
        vm.period(&beside_an_equal(&[100; 4], 100), 1, true);
        for _ in 0..12 {
            let whole = vm.whole();
            vm.period(&beside_an_equal(&uneven, whole), 1, false);
            vm.correct();
        }
        let is = cpus(&uneven, vm.whole());
        assert!((is - 2.0).abs() < 0.02, "{is} CPUs at a weight of {}", vm.whole());
        assert!((vm.due.since_cpus().unwrap() - 2.0).abs() < 0.001);
        vm.due.begin();
        assert_eq!(
            (vm.due.since_cpus(), vm.correct()),
            (None, vm.whole()),
            "nothing is known: it stays"
        );
    }

    #[test]
    fn one_whose_vcpus_leave_time_gets_it_for_the_one_that_waits() {
        // One of its vCPUs waits, and the others leave most of what is theirs.
        let did = || [seen(0.4, 0.6, true), seen(0.1, 0.05, false)];
        let mut vm = Shaper::new(BOTH, own(vec![100; 2], 100));
        vm.period(&did(), 1, true);
        vm.period(&did(), 1, false);
        assert_eq!(vm.correct(), 120, "1 CPU is due, and it gets half of one");
        for _ in 0..10 {
            vm.period(&did(), 1, false);
            vm.correct();
        }
        assert_eq!(vm.whole(), 400, "and no more than four times");
        let more = [seen(0.9, 0.1, true), seen(0.3, 0.05, false)];
        for _ in 0..20 {
            vm.period(&more, 1, false);
            vm.correct();
        }
        assert!(vm.whole() < 400, "it is lowered where it gets more than is due");
    }

    #[test]
    fn a_vm_that_does_less_is_not_raised() {
        let mut vm = Shaper::new(BOTH, own(vec![100; 2], 100));
        vm.period(&[seen(0.9, 0.0, true), seen(0.9, 0.0, true)], 1, true);
        for _ in 0..10 {
            vm.period(&[seen(0.1, 0.0, false), seen(0.1, 0.0, false)], 1, false);
            assert_eq!(vm.correct(), 100);
        }
    }

    proptest! {
        /// Whatever vCPUs did, and whatever their weights were.
        #[test]
        fn weights_keep_their_sum_and_are_what_the_kernel_takes(
            vcpus in prop::collection::vec((1..=10_000u64, 0.0..0.5f64, 0.0..0.5f64, any::<bool>()), 1..20),
            whole in 1..=10_000u64,
        ) {
            let weights: Vec<u64> = vcpus.iter().map(|vcpu| vcpu.0).collect();
            let did: Vec<Seen> = vcpus.iter().map(|(_, ran, waited, ready)| seen(*ran, *waited, *ready)).collect();
            let mut vm = Shaper::new(BOTH, own(weights.clone(), whole));
            for is_own in [true, false, false] {
                let decided = vm.period(&did, 1, is_own);
                prop_assert!(decided.iter().all(|decision| WEIGHTS.contains(&decision.weight)));
                let (sum, were): (u64, u64) =
                    (decided.iter().map(|decision| decision.weight).sum(), weights.iter().sum());
                let capped = decided.iter().any(|decision| decision.weight == 10_000);
                prop_assert!(capped || sum.abs_diff(were) <= weights.len() as u64);
                let whole_is = vm.correct();
                prop_assert!(WEIGHTS.contains(&whole_is) && (whole..=4 * whole).contains(&whole_is));
            }
        }
    }
}
