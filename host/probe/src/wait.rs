// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a vCPU has done until now: the programs' counts, and its unfinished stretch. The programs
//! count a stretch only when it ends, and it may last as long as a VM sleeps.

use crate::layout::{
    Cpu, Process, Runs, Share, Sums, Vcpu, HOST, NO_WAIT, ON, PENDING, READY, RUNS, UNSEEN, VCPU,
    VMM,
};
use unspin_diagnosis::{State, Times};

/// The state with this number, if there is one.
fn state(number: u32) -> Option<State> {
    State::ALL.get(number as usize).copied()
}

/// How long each kind of task has had a CPU until `now`, as seen by a vCPU of `vm`: `sums_now()` in C.
pub fn sums(cpu: &Cpu, own: &Share, vm: u32, now: u64) -> Sums {
    let had = |kind: u32| cpu.had[kind as usize];
    let others = (had(VCPU) + had(VMM)).saturating_sub(own.vcpus + own.vmm);
    let mut sums = Sums { sibling: own.vcpus, own_vmm: own.vmm, vm: others, host: had(HOST) };
    let runs = now.saturating_sub(cpu.since);
    match cpu.kind {
        HOST => sums.host += runs,
        VCPU if cpu.vm == vm => sums.sibling += runs,
        VMM if cpu.vm == vm => sums.own_vmm += runs,
        VCPU | VMM => sums.vm += runs,
        _ => {}
    }
    sums
}

/// Times until `now`, in the programs' clock. `at_now` are the sums of the CPU for which it waits. What it
/// did before its first event is in no state, unless it slept.
pub fn up_to(vcpu: &Vcpu, now: u64, at_now: &Sums) -> Times {
    let mut times = vcpu.times();
    let mut waited = now.saturating_sub(vcpu.since);
    match vcpu.place {
        ON => on(vcpu, now, &mut times),
        READY => waits(&vcpu.before, at_now, waited, &mut times),
        _ => {
            // It was not woken since, so it still sleeps.
            let woken = vcpu.woken_at > vcpu.since;
            let slept = if woken { vcpu.woken_at.min(now) - vcpu.since } else { waited };
            times[state(vcpu.asleep).unwrap_or(State::Blocked)] += slept;
            waited = waited.saturating_sub(slept);
            waits(&vcpu.before, at_now, waited, &mut times);
        }
    }
    times[State::ExitHalt] += vcpu.time[PENDING as usize];
    times
}

/// Whether a vCPU runs or could run. While it polls after HLT it could not.
pub fn is_ready(vcpu: &Vcpu) -> bool {
    match vcpu.place {
        ON => vcpu.counts != PENDING,
        READY => true,
        _ => vcpu.woken_at > vcpu.since,
    }
}

/// The time since when a vCPU waits for a CPU; `None` if it does not wait.
pub fn waits_since(vcpu: &Vcpu) -> Option<u64> {
    match vcpu.place {
        ON => None,
        READY => Some(vcpu.since),
        _ => (vcpu.woken_at > vcpu.since).then_some(vcpu.woken_at),
    }
}

/// For how long a vCPU was ready while a sibling was on a CPU, in ns, until the time that `ran` of its VM is of.
pub fn costop(vcpu: &Vcpu, ran: u64) -> u64 {
    let present = match (waits_since(vcpu), vcpu.ran_before) {
        (None, _) | (_, NO_WAIT) => 0,
        // Clocks of two CPUs may disagree.
        (Some(_), before) => ran.saturating_sub(before),
    };
    vcpu.costop + present
}

/// Who had a CPU between two times, latest first: `count_takers()` in C. Returns for how long somebody had it of
/// whom nothing is known any more.
pub fn takers(cpu: &Runs, begin: u64, end: u64, took: &mut dyn FnMut(&Process, u64)) -> u64 {
    let mut left = end.saturating_sub(begin);
    let part = |from: u64, to: u64| to.min(end).saturating_sub(from.max(begin));
    let mut took = |whose: &Process, time: u64| {
        let time = time.min(left);
        if whose.tgid != 0 && time > 0 {
            left -= time;
            took(whose, time);
        }
        left
    };
    took(&cpu.whose, part(cpu.since, end));
    for i in 1..=RUNS as u64 {
        let run = &cpu.last[cpu.next.wrapping_sub(i) as usize % RUNS];
        if run.end <= begin {
            return 0;
        }
        let left = took(&run.whose, part(run.begin, run.end));
        if i == RUNS as u64 {
            return part(begin, run.begin).min(left);
        }
    }
    0
}

/// The siblings that woke it in the last `kept_ns`, and some that did in as long before.
pub fn wakers(vcpu: &Vcpu, now: u64, kept_ns: u64) -> u64 {
    match now.saturating_sub(vcpu.wakers_at) {
        passed if passed < kept_ns => vcpu.wakers | vcpu.wakers_before,
        passed if passed < 2 * kept_ns => vcpu.wakers,
        _ => 0,
    }
}

fn on(vcpu: &Vcpu, now: u64, times: &mut Times) {
    let counts = match vcpu.counts {
        PENDING => Some(State::ExitHalt),
        UNSEEN => None,
        number => Some(state(number).unwrap_or(State::ExitOther)),
    };
    let spent = now.saturating_sub(vcpu.since);
    let in_vmm = match vcpu.vmm_at {
        0 => 0,
        at => now.saturating_sub(at).min(spent),
    };
    times[State::Vmm] += in_vmm;
    if let Some(counts) = counts {
        times[counts] += spent - in_vmm;
    }
}

/// `wait_ends()` in C, but for throttling: that is known only at its end.
fn waits(before: &Sums, after: &Sums, waited: u64, times: &mut Times) {
    let mut left = waited;
    let mut take = |state, wanted: u64| {
        let time = wanted.min(left);
        times[state] += time;
        left -= time;
    };
    take(State::ReadySibling, after.sibling.saturating_sub(before.sibling));
    take(State::ReadyVmm, after.own_vmm.saturating_sub(before.own_vmm));
    take(State::ReadyVm, after.vm.saturating_sub(before.vm));
    take(State::ReadyHost, after.host.saturating_sub(before.host));
    take(State::ReadyNobody, u64::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::ASLEEP;
    use proptest::prelude::*;

    const NOW: u64 = 1 << 40;

    fn before() -> impl Strategy<Value = Sums> {
        proptest::array::uniform4(0..NOW).prop_map(|[sibling, own_vmm, vm, host]| Sums {
            sibling,
            own_vmm,
            vm,
            host,
        })
    }

    proptest! {
        /// Whoever runs there: what is no vCPU's own is the other VMs'.
        #[test]
        fn all_that_a_cpu_gave_away_is_in_the_sums(
            had in proptest::array::uniform4(0..NOW / 4),
            (kind, vm, runs) in (0..4u32, 0..2u32, 0..NOW / 4),
            (of_vcpus, of_vmm) in (0..=100u64, 0..=100u64),
        ) {
            let cpu = Cpu { since: NOW - runs, kind, vm, had, ..Cpu::default() };
            let share = |of: u32, percent| had[of as usize] * percent / 100;
            let own = Share { vcpus: share(VCPU, of_vcpus), vmm: share(VMM, of_vmm) };
            let sums = sums(&cpu, &own, 0, NOW);
            let gave: u64 = had[1..].iter().sum::<u64>() + if kind == 0 { 0 } else { runs };
            prop_assert_eq!(sums.sibling + sums.own_vmm + sums.vm + sums.host, gave);
        }

        /// Whatever the sums of its CPU are.
        #[test]
        fn each_moment_is_counted_once(
            place in ON..=ASLEEP,
            (counts, asleep) in (0..UNSEEN, 0..State::COUNT as u32),
            is_unseen: bool,
            [since, woken_at, vmm_at] in proptest::array::uniform3(0..NOW),
            pending in 0..NOW,
            (first, last) in (before(), before()),
        ) {
            let mut vcpu = Vcpu {
                place, counts, asleep, since, woken_at, vmm_at, before: first, ..Vcpu::new()
            };
            vcpu.time[PENDING as usize] = pending;
            let times = up_to(&vcpu, NOW, &last);
            prop_assert_eq!(times.total(), NOW - since + pending);
            if is_unseen {
                vcpu.counts = UNSEEN;
                let on = |vcpu: &Vcpu| vcpu.place == ON && vcpu.vmm_at == 0;
                let expected = if on(&vcpu) { pending } else { times.total() };
                if on(&vcpu) || vcpu.place != ON {
                    prop_assert_eq!(up_to(&vcpu, NOW, &last).total(), expected);
                }
            }
        }
    }

    #[test]
    fn a_wait_goes_to_those_who_had_the_cpu() {
        let vcpu = Vcpu { place: READY, since: NOW - 100, ..Vcpu::new() };
        let after = Sums { sibling: 30, own_vmm: 4, vm: 25, host: 20 };
        assert!(is_ready(&vcpu));
        let polls = Vcpu { place: ON, counts: PENDING, ..vcpu };
        assert!(!is_ready(&polls) && is_ready(&Vcpu { counts: State::Guest as u32, ..polls }));
        let times = up_to(&vcpu, NOW, &after);
        let spent: Vec<(State, u64)> = times.spent().collect();
        let expected = [
            (State::ReadySibling, 30),
            (State::ReadyVm, 25),
            (State::ReadyVmm, 4),
            (State::ReadyHost, 20),
            (State::ReadyNobody, 21),
        ];
        assert_eq!(spent, expected);
    }

    #[test]
    fn a_sleeper_sleeps_until_it_is_woken() {
        let vcpu =
            Vcpu { place: ASLEEP, asleep: State::Halted as u32, since: NOW - 100, ..Vcpu::new() };
        let asleep = up_to(&vcpu, NOW, &Sums::default());
        assert_eq!(asleep.spent().collect::<Vec<_>>(), [(State::Halted, 100)]);
        let woken = Vcpu { woken_at: NOW - 30, ..vcpu };
        assert!(is_ready(&woken) && !is_ready(&vcpu));
        let woken = up_to(&woken, NOW, &Sums::default());
        assert_eq!(woken[State::Halted], 70);
        assert_eq!(woken[State::ReadyNobody], 30);
    }
}
