// SPDX-License-Identifier: MIT OR Apache-2.0
//! Weights and slices of a VM's vCPUs, period by period. `policy/asym` gets what the vCPUs did; its answer
//! determines the values. Pure functions: nothing is read or written here.
//!
//! Shan, "High Performance Cloud Computing on Multicore Computers", dissertation, New Jersey Institute of
//! Technology, sections 5.4.1 and 5.4.2. Weights within the VM keep their sum. Correcting the VM's own
//! weight is an addition of this project: see [`Due`].

use unspin_diagnosis::State;
use unspin_probe::{Seen, NUMBERS};
use unspin_shape::alike;
use unspin_shape::asym::{self, Params, Vcpu};
use unspin_shape::due::{Due, Got};
use unspin_shape::lasting::Lasting;

/// The values that the kernel accepts for `cpu.weight`.
const WEIGHTS: std::ops::RangeInclusive<u64> = 1..=10_000;
/// If no weight or slice differs from its present value by more than this factor, all stay, because a
/// write also costs time. Latencies change by factors of two.
pub const WEIGHTS_FAR: f64 = 1.1;
pub const SLICES_FAR: f64 = 2.0;
/// The same factor for the VM's own weight. Beside an equal VM, its CPU time changes by half as
/// much.
pub const WHOLE_FAR: f64 = 1.02;
/// What a switch of a vCPU costs its VM, if switches are charged. An estimate of this project: a switch out
/// and in, without what cold caches cost afterwards.
const SWITCH_NS: u64 = 2_000;

/// What a vCPU did per period, as the mean over `periods`.
fn got_of(seen: &Seen, periods: u32) -> Got {
    let sum = |is: fn(State) -> bool| {
        seen.times.spent().filter(|(state, _)| is(*state)).map(|(_, ns)| ns).sum::<u64>()
    };
    let mean_ns = |ns: u64| ns / u64::from(periods.max(1));
    let (on_cpu_ns, waited_ns) = (mean_ns(sum(State::is_on_cpu)), mean_ns(sum(State::is_ready)));
    Got { on_cpu_ns, waited_ns, wall_ns: mean_ns(seen.times.total()) }
}

/// What the switches of a VM's vCPUs cost it per period (5.4.1, footnote 3).
fn switch_ns(seen: &[Seen], periods: u32) -> u64 {
    let switches: u64 = seen.iter().map(|seen| seen.switches).sum();
    switches.saturating_mul(SWITCH_NS) / u64::from(periods.max(1))
}

/// [`Decision::conflicts`] of a vCPU that did `seen` in so many periods. It leaves a CPU by falling asleep,
/// after which it is woken, or by being preempted.
fn conflicts(seen: &Seen, periods: u32, waited_ns: u64, latency_us: u32) -> u64 {
    let periods = u64::from(periods.max(1));
    let preempted = seen.switches.saturating_sub(seen.wakes) / periods;
    preempted + (waited_ns / 1000 / u64::from(latency_us.max(1))).min(seen.wakes / periods)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// The vCPUs' shares of the VM's CPU time (5.4.1).
    pub time: bool,
    /// How soon a vCPU gets a CPU when it wakes up (5.4.2).
    pub latency: bool,
    /// The CPU of each vCPU (5.4.3, [`super::apart`]).
    pub resolver: bool,
    /// The VM's own weight is corrected. Not in the text.
    pub weight: bool,
    /// As in the text: each period alone decides about all vCPUs, what it decides is set, and the VM pays
    /// for the switches of its vCPUs.
    pub uncorrected: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub weight: u64,
    /// `None` if latency is not adapted.
    pub slice_ns: Option<u64>,
    /// Whether its slice follows its latency, because it woke up.
    pub woke: bool,
    /// CPU time in ns: given to it in the last period, used of that, and given to it next.
    pub given_ns: u64,
    pub used_ns: u64,
    pub next_ns: u64,
    pub need: Lasting,
    pub ready: bool,
    /// How soon it should get a CPU, in us.
    pub latency_us: u32,
    /// How often it was preempted in the period, or waited for a CPU for longer than its latency after a
    /// wake-up. The latter is estimated by the time that it waited.
    pub conflicts: u64,
}

/// The settings of a VM before any change.
#[derive(Debug, Clone, PartialEq)]
pub struct Own {
    /// Weights of its vCPUs, and of the VM.
    pub weights: Vec<u64>,
    pub whole: u64,
    /// The CPUs due to the VM by its weight, if all VMs use their shares.
    pub due_cpus: f64,
    /// Slices of its vCPUs; empty if latency is not adapted.
    pub slices_ns: Vec<u64>,
}

/// A VM: its vCPUs, its original weights, and its CPU time.
#[derive(Debug)]
pub struct Shaper {
    pub parts: Parts,
    params: Params,
    vcpus: Vec<Vcpu>,
    /// The lasting need of each vCPU, which determines the weights.
    needs: Vec<Lasting>,
    pub own: Own,
    /// The VM's CPU time, and the correction of its own weight.
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

    /// Ends `periods` periods in which the vCPUs did `seen`, and decides about the next. `is_own`: the
    /// VM had its original weights in them.
    pub fn period(&mut self, seen: &[Seen], periods: u32, is_own: bool) -> Vec<Decision> {
        let each: Vec<Got> = seen.iter().map(|seen| got_of(seen, periods)).collect();
        let got = Got::together(&each);
        self.due.period(&got, is_own);
        // Before the first period nothing was given out, so all are alike.
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
        let switch_ns = if self.parts.uncorrected { switch_ns(seen, periods) } else { 0 };
        asym::allocate(&mut self.vcpus, &self.params, due_ns, switch_ns);
        for (need, vcpu) in self.needs.iter_mut().zip(&self.vcpus) {
            if self.parts.uncorrected {
                *need = Lasting::default();
            }
            need.period(vcpu.allocated_ns);
        }
        let weights = self.weights();
        let needs: Vec<Lasting> = match self.parts.uncorrected {
            true => self.needs.clone(),
            false => alike::counted(&self.needs).collect(),
        };
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
            conflicts: conflicts(&seen[index], periods, each[index].waited_ns, vcpu.latency_us),
        };
        self.vcpus.iter().enumerate().take(seen.len()).map(decision).collect()
    }

    /// The latency decides how soon a vCPU runs after a wake-up. If it did not wake up, a short slice
    /// would only cause more switches.
    fn slice_ns(&self, index: usize, seen: &Seen) -> Option<u64> {
        let own = *self.own.slices_ns.get(index).filter(|_| self.parts.latency)?;
        Some(match seen.wakes {
            0 => own,
            _ => u64::from(self.vcpus[index].latency_us) * 1000,
        })
    }

    /// Which vCPU woke which, by their indices.
    fn wakers(&mut self, seen: &[Seen]) {
        let index_of = |number: u32| seen.iter().position(|seen| seen.number == number);
        for (vcpu, seen) in self.vcpus.iter_mut().zip(seen) {
            let numbers = (0..NUMBERS).filter(|number| seen.wakers >> number & 1 == 1);
            let indices = numbers.filter_map(index_of).filter(|index| *index < 64);
            vcpu.wakers = indices.fold(0, |mask, index| mask | 1 << index);
        }
    }

    /// Divides the sum of the original weights by need. If the needs are equal, the weights stay.
    fn weights(&self) -> Vec<u64> {
        let sum: u64 = self.own.weights.iter().sum();
        let all_ns: f64 = self.needs.iter().map(Lasting::ns).sum();
        let Parts { time, uncorrected, .. } = self.parts;
        if all_ns == 0.0 || !time || (!uncorrected && alike::need_alike(&self.needs)) {
            return self.own.weights.clone();
        }
        let of = |need: &Lasting| {
            let exact = sum as f64 * need.ns() / all_ns;
            (exact.round() as u64).clamp(*WEIGHTS.start(), *WEIGHTS.end())
        };
        self.needs.iter().map(of).collect()
    }

    /// Corrects the VM's own weight by the CPU time since the last call, and returns it.
    pub fn correct(&mut self) -> u64 {
        if self.parts.weight {
            self.due.correct();
        }
        self.whole()
    }

    /// The VM's own weight with the present correction.
    pub fn whole(&self) -> u64 {
        self.due.raised(self.own.whole).clamp(*WEIGHTS.start(), *WEIGHTS.end())
    }
}

/// Whether the wanted values differ from the present ones by enough to be worth a write.
pub fn differ(are: &[u64], wanted: &[u64], far: f64) -> bool {
    let is_far = |(is, wanted): (&u64, &u64)| *is.max(wanted) as f64 > far * *is.min(wanted) as f64;
    are.iter().zip(wanted).any(is_far)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD_NS: u64 = 80_000_000;
    const BOTH: Parts =
        Parts { time: true, latency: true, resolver: false, weight: true, uncorrected: false };
    const SLICE_NS: u64 = 3_000_000;

    fn own(weights: Vec<u64>, whole: u64) -> Own {
        let (due_cpus, slices_ns) = (weights.len() as f64 / 2.0, vec![SLICE_NS; weights.len()]);
        Own { weights, whole, due_cpus, slices_ns }
    }

    /// A vCPU that ran and waited for these parts of the period, and may be ready at its end.
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
        // The first is due half of its 80 ms, the second all of it: 120 ms, divided by demands of 66 and
        // 20 ms.
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
        // The first could continue, and gets half of its part. The second has used all of it, and
        // sleeps.
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

    #[test]
    fn a_vcpu_conflicts_by_preemptions_and_late_waits() {
        let of = |switches, wakes| Seen { switches, wakes, ..Seen::default() };
        assert_eq!(conflicts(&of(9, 4), 1, 0, 250), 5, "preempted as often as it did not sleep");
        assert_eq!(conflicts(&of(9, 4), 1, 750_000, 250), 8, "and three waits too long");
        assert_eq!(conflicts(&of(9, 4), 1, 80_000_000, 250), 9, "one per wake-up at most");
        assert_eq!(conflicts(&of(9, 4), 2, 80_000_000, 250), 4);
        assert_eq!(conflicts(&of(3, 4), 0, 0, 0), 0);
    }

    #[test]
    fn each_part_works_without_the_others() {
        let uneven = || [seen(0.5, 0.5, true), seen(0.25, 0.0, false)];
        let after = |parts: Parts| {
            let mut vm = Shaper::new(parts, own(vec![100; 2], 100));
            vm.period(&uneven(), 1, true);
            let decided = vm.period(&uneven(), 1, false);
            (decided.iter().map(|d| d.weight).collect::<Vec<_>>(), vm.correct())
        };
        let off = Parts { time: false, latency: false, weight: false, ..BOTH };
        assert_eq!(after(off), (vec![100, 100], 100));
        assert_eq!(after(Parts { weight: true, ..off }), (vec![100, 100], 120));
        let (weights, whole) = after(Parts { time: true, uncorrected: true, ..off });
        assert!(weights[0] > 150 && whole == 100, "{weights:?} {whole}");
        // Equal needs by chance: the text follows the difference, and so does an uncorrected VM.
        let nearly = [seen(0.5, 0.4, true), seen(0.5, 0.4, false)];
        let weights = |uncorrected| {
            let mut vm = Shaper::new(Parts { uncorrected, ..BOTH }, own(vec![100; 2], 100));
            vm.period(&nearly, 1, true)[0].weight
        };
        assert_eq!(weights(false), 100);
        assert!(weights(true) > 100, "{}", weights(true));
    }

    #[test]
    fn an_uncorrected_vm_pays_for_its_switches() {
        let next_ns = |uncorrected, switches: [u64; 2]| {
            let mut vm = Shaper::new(Parts { uncorrected, ..BOTH }, own(vec![100; 2], 100));
            let [first, second] = switches;
            let did = [
                Seen { switches: first, ..seen(0.5, 0.5, true) },
                Seen { switches: second, ..seen(0.25, 0.0, false) },
            ];
            vm.period(&did, 2, true).iter().map(|d| d.next_ns).sum::<u64>()
        };
        // The switches of both vCPUs in 2 periods, of which one is charged.
        assert_eq!(next_ns(true, [0, 0]) - next_ns(true, [600, 400]), 500 * SWITCH_NS);
        assert_eq!(next_ns(true, [u64::MAX, 0]), 0, "and no more than all of its time");
        assert_eq!(next_ns(false, [600, 400]), next_ns(false, [0, 0]));
    }

    /// vCPUs with a CPU each, beside an equal VM. On each CPU the two VMs share by the weights of their
    /// vCPUs there, as in the kernel.
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
        // One of its vCPUs waits. The others leave most of their time unused.
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
        /// For all behaviours and weights of the vCPUs.
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
