// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes causes from states.

use crate::access::Group;
use crate::cause::{Cause, Sure};
use crate::state::{State, Times};
use serde::Serialize;
use State::*;

/// The smallest share of the vCPUs' wall time for a dominant cause.
pub const DOMINANT_SHARE_MIN: f64 = 0.05;

/// With fewer samples of the module the share is unknown.
const USER_LOOKS_MIN: u64 = 20;

/// Share of a VM's guest time in which it spins in user space, from the module's samples; `None` if
/// there are too few.
pub fn user_spin_share(looks: u64, spins: u64) -> Option<f64> {
    (looks >= USER_LOOKS_MIN).then(|| spins as f64 / looks as f64)
}

/// The states that count as lost to a cause. Each state belongs to one cause at most.
const LOST: &[(Cause, &[State])] = &[
    (Cause::Contention, &[ReadySibling, ReadyVm, ReadyVmm, ReadyHost, Throttled, Parked]),
    (Cause::SpinSwitch, &[ExitPause]),
    (Cause::IdleSwitch, &[ExitHalt, Poll, Waking, ReadyNobody]),
    (Cause::Ipi, &[ExitIpi, ExitApic, ExitInterrupt]),
    (Cause::Device, &[ExitIo, ExitMmio, Vmm]),
    (Cause::Msr, &[ExitMsr]),
];

/// What all vCPUs of a VM did together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Did {
    /// Number of these vCPUs; 0 if no thread is known to run one, so that nothing is known of them.
    pub vcpus: usize,
    /// Number of further vCPUs that were not observed: what they did is unknown.
    pub unseen: usize,
    /// Wall time, in ns; above 0.
    pub window_ns: u64,
    pub times: Times,
    /// Exits, by the state that follows.
    pub exits: Times,
    /// Whether spinning vCPUs exit on this host; `None`: the kernel does not show it.
    pub pause_loop_exits: Option<bool>,
    /// Spinning before a pause-loop exit, in ns; `None`: the window is unknown.
    pub spin_ns_per_exit: Option<f64>,
    /// Share of its guest time in which it spins in user space; `None`: not sampled.
    pub user_spin_share: Option<f64>,
    /// Last-level caches that its vCPUs may use; `None`: the kernel does not show it.
    pub caches: Option<usize>,
    /// Whether a quota limits it and the kernel does not show for how long. Such waits are counted as waits
    /// for other tasks, or for an idle CPU.
    pub hides_throttling: bool,
    /// Whether the host does not show the reasons of exits.
    pub hides_reasons: bool,
    /// CPU time of its VMM's threads that run no vCPU, in ns; `None`: not measured.
    pub monitor_ns: Option<u64>,
    /// How long 0, 1, 2, … of its vCPUs wanted a CPU at the same time, in ns; the last entry is for all
    /// larger numbers. Empty: not measured.
    pub wanting_ns: Vec<u64>,
    /// Its guest's accesses, longest time first; `None`: unknown.
    pub accesses: Option<Vec<Group>>,
}

/// The loss of a VM to a cause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Loss {
    pub cause: Cause,
    /// vCPU-seconds per second of wall time, for [`Cause::Monitor`] CPU-seconds; `None` if unknown.
    pub lost_s_per_s: Option<f64>,
    /// The same as a share of the wall time of all its vCPUs, 0 to 1.
    pub share: Option<f64>,
    pub sure: Sure,
    /// How the figure was computed, in one line.
    pub stands_on: String,
}

impl Did {
    /// The wall time of all vCPUs, in ns.
    pub(crate) fn wall(&self) -> f64 {
        self.vcpus.max(1) as f64 * self.window_ns.max(1) as f64
    }

    /// The number of CPUs that this time keeps busy.
    pub fn cpus(&self, ns: u64) -> f64 {
        ns as f64 / self.window_ns.max(1) as f64
    }

    /// The number of CPUs that its vCPUs keep busy, inside and outside the guest.
    pub fn cpus_of_vcpus(&self) -> f64 {
        let on_cpu = State::ALL.iter().filter(|state| state.is_on_cpu());
        self.cpus(on_cpu.map(|state| self.times[*state]).sum())
    }

    /// Share of the vCPUs' wall time in these states.
    pub fn share(&self, states: &[State]) -> f64 {
        self.times.of(states) as f64 / self.wall()
    }

    fn loss(&self, cause: Cause, lost_ns: Option<f64>, sure: Sure, stands_on: String) -> Loss {
        // An estimate cannot exceed the available time.
        let lost_ns = lost_ns.map(|ns| ns.clamp(0.0, self.wall()));
        Loss {
            cause,
            lost_s_per_s: lost_ns.map(|ns| ns / self.window_ns.max(1) as f64),
            share: lost_ns.map(|ns| ns / self.wall()),
            sure,
            stands_on,
        }
    }

    /// Whether entries into the guest are invisible: its vCPUs ran, but none seemed to enter or leave a
    /// guest.
    pub fn is_unseen(&self) -> bool {
        let ran = State::ALL.iter().any(|state| state.is_on_cpu() && self.times[*state] > 0);
        ran && self.times[Guest] == 0 && self.exits.total() == 0
    }
}

/// The loss to each cause, in the order of [`Cause::ALL`].
pub fn losses(did: &Did) -> Vec<Loss> {
    Cause::ALL.iter().map(|cause| loss(did, *cause)).collect()
}

fn loss(did: &Did, cause: Cause) -> Loss {
    if let Some(why) = unknown(did, cause) {
        return did.loss(cause, None, Sure::Unknown, why.into());
    }
    let lost = LOST.iter().find(|(lost_to, _)| *lost_to == cause);
    let states = lost.map_or(&[][..], |(_, states)| states);
    let measured = did.times.of(states) as f64;
    let (lost_ns, sure, text) = match cause {
        Cause::SpinSwitch => spin_switch(did, measured),
        Cause::UserSpin => {
            let share = did.user_spin_share.unwrap_or_default().clamp(0.0, 1.0);
            let text = "the module's samples in user-space spins, times the time in the guest";
            (share * did.times[Guest] as f64, Sure::Estimated, text.to_string())
        }
        Cause::Monitor => {
            let ns = did.monitor_ns.unwrap_or_default() as f64;
            (ns, Sure::Measured, "CPU time of its other threads".to_string())
        }
        _ => {
            let spent = states.iter().filter(|state| did.times[**state] > 0);
            let names: Vec<&str> = spent.map(|state| state.name()).collect();
            let none = names.is_empty().then(|| "none of this time occurred".to_string());
            (measured, Sure::Measured, none.unwrap_or_else(|| names.join(", ")))
        }
    };
    did.loss(cause, Some(lost_ns), sure, text)
}

/// Why the loss to a cause is unknown; `None` if it is known.
fn unknown(did: &Did, cause: Cause) -> Option<&'static str> {
    let is_of_exits = matches!(
        cause,
        Cause::SpinSwitch | Cause::IdleSwitch | Cause::Ipi | Cause::Device | Cause::Msr
    );
    let is_in_guest = is_of_exits || cause == Cause::UserSpin;
    Some(match cause {
        _ if did.vcpus == 0 && did.unseen > 0 => "nothing was seen of its vCPUs",
        _ if did.vcpus == 0 => "the threads of its vCPUs are unknown",
        Cause::Contention | Cause::IdleSwitch if did.hides_throttling => {
            "this kernel does not show for how long its quota stopped it"
        }
        _ if is_of_exits && did.hides_reasons => {
            "this host's KVM does not tell why the guest exits"
        }
        _ if is_in_guest && did.is_unseen() => {
            "its vCPUs ran, but KVM reported no entry into the guest"
        }
        Cause::SpinSwitch if did.exits[ExitPause] == 0 && did.pause_loop_exits == Some(false) => {
            "this host has no pause-loop exits, so spinning cannot be seen"
        }
        Cause::UserSpin if did.user_spin_share.is_none() => {
            "not sampled: needs the module, with coscheduling=vcrd-user or vcrd-both"
        }
        Cause::Cache if did.caches == Some(1) => {
            "its vCPUs share one last-level cache; misses are not counted"
        }
        Cause::Cache => "misses are not counted",
        Cause::Monitor if did.monitor_ns.is_none() => "not measured here",
        _ => return None,
    })
}

/// The time, its certainty, and how it was computed.
fn spin_switch(did: &Did, measured: f64) -> (f64, Sure, String) {
    let exits = did.exits[ExitPause];
    match did.spin_ns_per_exit {
        _ if exits == 0 => (measured, Sure::Measured, "no pause-loop exits".into()),
        Some(spin_ns) => {
            // Spinning is part of the time in the guest, and cannot exceed it.
            let spun = (exits as f64 * spin_ns).min(did.times[Guest] as f64);
            let text = format!("exit:pause, plus {exits} pause-loop exits times their window");
            (measured + spun, Sure::Estimated, text)
        }
        None => {
            let text = "exit:pause, without the spinning before it, because the window is unknown";
            (measured, Sure::Estimated, text.into())
        }
    }
}

/// The cause with the largest loss, if it is large enough.
pub fn dominant(losses: &[Loss]) -> Option<Cause> {
    dominant_of(losses.iter().filter_map(|loss| Some((loss.cause, loss.share?))))
}

/// The cause with the largest of these shares of the vCPUs' wall time, if it is large enough.
pub fn dominant_of(shares: impl Iterator<Item = (Cause, f64)>) -> Option<Cause> {
    let most = shares.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most.1 >= DOMINANT_SHARE_MIN).then_some(most.0)
}

/// Other exits: time that is neither lost to a cause, nor spent in the guest or asleep, as a share of
/// the vCPUs' wall time.
pub fn remainder(did: &Did) -> f64 {
    let is_lost = |state: &State| LOST.iter().any(|(_, states)| states.contains(state));
    let accounted = [Guest, Halted, Blocked, Stopped];
    let rest: Vec<State> = State::ALL
        .iter()
        .filter(|state| !is_lost(state) && !accounted.contains(state))
        .copied()
        .collect();
    did.share(&rest)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn did() -> impl Strategy<Value = Did> {
        let times = || prop::collection::vec(0..1_000_000_000u64, State::COUNT);
        let share = prop::option::of(0.0..1.0);
        let monitor = prop::option::of(0..2_000_000_000u64);
        (1..64usize, times(), times(), prop::option::of(0.0..1e5), share, monitor).prop_map(
            |(vcpus, times, exits, spin_ns_per_exit, user_spin_share, monitor_ns)| {
                let array = |all: Vec<u64>| <[u64; State::COUNT]>::try_from(all).unwrap();
                let times = Times::from(array(times));
                Did {
                    vcpus,
                    window_ns: times.total().div_ceil(vcpus as u64).max(1),
                    times,
                    exits: array(exits).map(|count| count / 10_000).into(),
                    spin_ns_per_exit,
                    user_spin_share,
                    monitor_ns,
                    ..Did::default()
                }
            },
        )
    }

    #[test]
    fn no_state_is_lost_to_two_causes() {
        for state in State::ALL {
            let causes = LOST.iter().filter(|(_, states)| states.contains(state)).count();
            assert!(causes <= 1, "{state:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_twice(did in did()) {
            let losses = losses(&did);
            let of_cause: Vec<Cause> = losses.iter().map(|loss| loss.cause).collect();
            prop_assert_eq!(&of_cause[..], &Cause::ALL[..]);
            for loss in &losses {
                prop_assert_eq!(loss.share.is_none(), loss.sure == Sure::Unknown);
                prop_assert!(loss.share.is_none_or(|share| (0.0..=1.0).contains(&share)));
            }
            let timed: f64 = losses
                .iter()
                .filter(|loss| loss.sure == Sure::Measured && loss.cause != Cause::Monitor)
                .filter_map(|loss| loss.share)
                .sum();
            let rest = did.share(&[Guest, Halted, Blocked, Stopped]) + remainder(&did);
            prop_assert!(timed + rest <= 1.0 + 1e-9, "{timed} and {rest}");
        }

        #[test]
        fn more_of_a_cause_never_makes_another_dominant(did in did(), which in 0..LOST.len()) {
            let (cause, states) = LOST[which];
            let mut more = did.clone();
            more.times[states[0]] += 4 * did.times.total();
            more.window_ns += 4 * did.times.total() / did.vcpus as u64;
            // An estimated spin may exceed this.
            prop_assume!(cause == Cause::SpinSwitch || did.spin_ns_per_exit.is_none());
            // So may the time of other threads.
            more.monitor_ns = None;
            prop_assert_eq!(dominant(&losses(&more)), Some(cause));
        }
    }

    #[test]
    fn little_of_everything_is_no_dominant_cause() {
        let mut did = Did { vcpus: 2, window_ns: 1000, ..Did::default() };
        did.times[Guest] = 1900;
        did.times[ReadyVm] = 99;
        assert_eq!(dominant(&losses(&did)), None);
        did.times[ReadyVm] = 101;
        assert_eq!(dominant(&losses(&did)), Some(Cause::Contention));
    }

    #[test]
    fn what_is_not_seen_is_not_0() {
        let sure = |did: &Did| losses(did).iter().map(|loss| loss.sure).collect::<Vec<_>>();
        let mut did = Did { vcpus: 1, window_ns: 1000, ..Did::default() };
        did.times[Guest] = 1000;
        assert_eq!(sure(&did)[Cause::SpinSwitch as usize], Sure::Measured);
        did.pause_loop_exits = Some(false);
        assert_eq!(sure(&did)[Cause::SpinSwitch as usize], Sure::Unknown);
        did.exits[ExitPause] = 1;
        assert_eq!(sure(&did)[Cause::SpinSwitch as usize], Sure::Estimated);

        // For any time on a CPU: KVM has reported no exit.
        for on_cpu in [Vmm, ExitInterrupt, Waking] {
            let mut unseen = Did { vcpus: 1, window_ns: 1000, ..Did::default() };
            unseen.times[on_cpu] = 800;
            unseen.times[ReadyHost] = 200;
            for loss in losses(&unseen) {
                let is_known = loss.cause == Cause::Contention;
                assert_eq!(loss.share.is_some(), is_known, "{:?} of {on_cpu:?}", loss.cause);
            }
        }
    }

    #[test]
    fn exits_for_no_reason_make_causes_unknown() {
        let mut did = Did { vcpus: 1, window_ns: 1000, hides_reasons: true, ..Did::default() };
        (did.times[Guest], did.times[ExitOther], did.times[ReadyVm]) = (400, 300, 300);
        did.exits[ExitOther] = 3;
        let known = losses(&did).into_iter().filter(|loss| loss.share.is_some());
        assert_eq!(known.map(|loss| loss.cause).collect::<Vec<_>>(), [Cause::Contention]);
    }

    /// For any task that had the CPU meanwhile.
    #[test]
    fn a_quota_that_hides_makes_waits_unknown() {
        let mut did = Did { vcpus: 1, window_ns: 1000, ..Did::default() };
        (did.times[Guest], did.times[ReadyVm], did.times[ReadyNobody]) = (400, 300, 300);
        for hides_throttling in [false, true] {
            did.hides_throttling = hides_throttling;
            for cause in [Cause::Contention, Cause::IdleSwitch] {
                let loss = &losses(&did)[cause as usize];
                assert_eq!((loss.cause, loss.share.is_none()), (cause, hides_throttling));
            }
        }
    }

    #[test]
    fn a_few_looks_say_nothing() {
        assert_eq!(user_spin_share(19, 19), None);
        assert_eq!(user_spin_share(40, 30), Some(0.75));
    }

    #[test]
    fn a_spin_is_a_window_per_exit() {
        let mut did = Did { vcpus: 1, window_ns: 1_000_000, ..Did::default() };
        did.times[Guest] = 800_000;
        did.times[ExitPause] = 100_000;
        did.exits[ExitPause] = 100;
        did.spin_ns_per_exit = Some(2000.0);
        let loss = &losses(&did)[Cause::SpinSwitch as usize];
        assert_eq!((loss.share, loss.sure), (Some(0.3), Sure::Estimated));
    }
}
