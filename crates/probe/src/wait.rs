// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a vCPU has done up to now: what the programs have counted, and the stretch that it is in. They
//! count that only when it ends, and it may be as long as a VM sleeps.

use crate::layout::{
    Before, Cpu, Share, Vcpu, HOST, IN_EXIT, IN_GUEST, IN_VMM, ON, READY, VCPU, VMM, WAKING,
};
use unspin_diagnosis::{State, Times};

/// The state with this number; `None` where there is none.
fn state(number: u32) -> Option<State> {
    State::ALL.get(number as usize).copied()
}

/// What a vCPU of `vm` sees of its CPU at `now`: `sums()` in C.
pub fn sums(cpu: &Cpu, own: &Share, vm: u32, now: u64) -> Before {
    let runs = now.saturating_sub(cpu.since);
    let of = |kind| if cpu.kind == kind { runs } else { 0 };
    let of_own = |kind| if cpu.vm == vm { of(kind) } else { 0 };
    Before {
        vcpus: cpu.had[VCPU as usize] + of(VCPU),
        vmm: cpu.had[VMM as usize] + of(VMM),
        host: cpu.had[HOST as usize] + of(HOST),
        own_vcpus: own.vcpus + of_own(VCPU),
        own_vmm: own.vmm + of_own(VMM),
    }
}

/// Times up to `now`, which is of the programs' clock; `at_now` are the sums of the CPU it waits for.
pub fn up_to(vcpu: &Vcpu, now: u64, at_now: &Before) -> Times {
    let mut times = Times::from(vcpu.time);
    let mut waited = now.saturating_sub(vcpu.since);
    match vcpu.place {
        ON => on(vcpu, now, &mut times),
        READY => waits(&vcpu.before, at_now, waited, &mut times),
        _ => {
            // Not woken since: it still sleeps.
            let woken = vcpu.woken_at > vcpu.since;
            let slept = if woken { vcpu.woken_at.min(now) - vcpu.since } else { waited };
            times[state(vcpu.asleep).unwrap_or(State::Blocked)] += slept;
            waited = waited.saturating_sub(slept);
            waits(&vcpu.before, at_now, waited, &mut times);
        }
    }
    times[State::ExitHalt] += vcpu.pending;
    times
}

fn on(vcpu: &Vcpu, now: u64, times: &mut Times) {
    let of_phase = match vcpu.phase {
        IN_GUEST => State::Guest,
        WAKING => State::Waking,
        IN_VMM => State::Vmm,
        IN_EXIT => state(vcpu.reason).unwrap_or(State::ExitOther),
        _ => State::ExitOther,
    };
    let spent = now.saturating_sub(vcpu.since);
    let in_vmm = match vcpu.vmm_at {
        0 => 0,
        at => now.saturating_sub(at).min(spent),
    };
    times[State::Vmm] += in_vmm;
    times[of_phase] += spent - in_vmm;
}

/// `wait_ends()` in C, but for throttling: that is known only at its end.
fn waits(before: &Before, after: &Before, waited: u64, times: &mut Times) {
    let mut left = waited;
    let mut take = |state, wanted: u64| {
        let time = wanted.min(left);
        times[state] += time;
        left -= time;
    };
    let since = |of: fn(&Before) -> u64| of(after).saturating_sub(of(before));
    let own_vcpus = since(|s| s.own_vcpus);
    let own_vmm = since(|s| s.own_vmm);
    take(State::ReadySibling, own_vcpus);
    take(State::ReadyVmm, own_vmm);
    let others =
        since(|s| s.vcpus).saturating_sub(own_vcpus) + since(|s| s.vmm).saturating_sub(own_vmm);
    take(State::ReadyVm, others);
    take(State::ReadyHost, since(|s| s.host));
    take(State::ReadyNobody, u64::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::ASLEEP;
    use proptest::prelude::*;

    const NOW: u64 = 1 << 40;

    fn before() -> impl Strategy<Value = Before> {
        proptest::array::uniform5(0..NOW).prop_map(|[vcpus, vmm, host, own_vcpus, own_vmm]| {
            Before { vcpus, vmm, host, own_vcpus, own_vmm }
        })
    }

    proptest! {
        /// Whatever the sums of its CPU are.
        #[test]
        fn each_moment_is_counted_once(
            place in ON..=ASLEEP,
            phase in IN_GUEST..=IN_VMM,
            (reason, asleep) in (0..40u32, 0..State::COUNT as u32),
            [since, woken_at, vmm_at] in proptest::array::uniform3(0..NOW),
            pending in 0..NOW,
            (first, last) in (before(), before()),
        ) {
            let vcpu = Vcpu {
                place, phase, reason, asleep, since, woken_at, vmm_at, pending, before: first,
                ..Vcpu::default()
            };
            let times = up_to(&vcpu, NOW, &last);
            prop_assert_eq!(times.total(), NOW - since + pending);
        }
    }

    #[test]
    fn a_wait_goes_to_those_who_had_the_cpu() {
        let vcpu = Vcpu { place: READY, since: NOW - 100, phase: IN_EXIT, ..Vcpu::default() };
        let after = Before { vcpus: 50, vmm: 9, host: 20, own_vcpus: 30, own_vmm: 4 };
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
        let vcpu = Vcpu {
            place: ASLEEP,
            asleep: State::Halted as u32,
            since: NOW - 100,
            ..Vcpu::default()
        };
        let asleep = up_to(&vcpu, NOW, &Before::default());
        assert_eq!(asleep.spent().collect::<Vec<_>>(), [(State::Halted, 100)]);
        let woken = Vcpu { woken_at: NOW - 30, ..vcpu };
        let woken = up_to(&woken, NOW, &Before::default());
        assert_eq!(woken[State::Halted], 70);
        assert_eq!(woken[State::ReadyNobody], 30);
    }
}
