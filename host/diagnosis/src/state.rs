// SPDX-License-Identifier: MIT OR Apache-2.0
//! The states of a vCPU; it is always in exactly one.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::ops::{AddAssign, Index, IndexMut};

macro_rules! states {
    ($($state:ident $name:literal $meaning:literal)*) => {
        /// The use of a vCPU's time. Each moment of its wall time is in one state.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum State {
            $(#[doc = $meaning] $state,)*
        }

        impl State {
            pub const ALL: &'static [State] = &[$(State::$state),*];

            /// The name in tables, JSON and exported labels.
            pub const fn name(self) -> &'static str {
                match self { $(State::$state => $name),* }
            }

            /// A line of help.
            pub const fn meaning(self) -> &'static str {
                match self { $(State::$state => $meaning),* }
            }
        }
    };
}

states! {
    Guest "guest" "on a CPU, in the guest, including spins too short for a pause-loop exit"
    ExitPause "exit:pause" "on a CPU, from a pause-loop exit to the entry after it"
    ExitHalt "exit:halt" "on a CPU, from HLT of the guest to its sleep or next entry, without \
                          polling"
    ExitInterrupt "exit:interrupt" "on a CPU, from an interrupt of the host to the entry after it"
    ExitIpi "exit:ipi" "on a CPU, while KVM sends an interrupt to a sibling vCPU"
    ExitApic "exit:apic" "on a CPU, for a guest access to its interrupt controller"
    ExitMsr "exit:msr" "on a CPU, for a guest access to a model-specific register"
    ExitIo "exit:io" "on a CPU, for a guest access to an I/O port, while in the kernel"
    ExitMmio "exit:mmio" "on a CPU, for a guest access to a device's memory, while in the kernel"
    ExitMemory "exit:memory" "on a CPU, for a guest access to memory that is not mapped"
    ExitHypercall "exit:hypercall" "on a CPU, for a hypercall other than one that sends interrupts"
    ExitCpuid "exit:cpuid" "on a CPU, for CPUID"
    ExitOther "exit:other" "on a CPU, from an exit of any other kind to the entry after it"
    Poll "poll" "on a CPU, after HLT: KVM polls for a wake-up before it sleeps"
    Waking "waking" "on a CPU again after HLT, not yet in the guest"
    Vmm "vmm" "on a CPU, in the VMM, or on the way back from it"
    ReadySibling "ready:sibling" "runnable; a vCPU of the same VM has the CPU"
    ReadyVm "ready:vm" "runnable; another VM has the CPU"
    ReadyVmm "ready:own-vmm" "runnable; another thread of its own VMM has the CPU"
    ReadyHost "ready:host" "runnable; a task of the host has the CPU"
    ReadyNobody "ready:nobody" "runnable; the CPU is idle and has to wake up first"
    Throttled "throttled" "throttled: the quota of its cgroup is used up"
    Halted "halted" "asleep: the guest is idle"
    Blocked "blocked" "asleep in KVM or the VMM for another reason, such as memory or a device"
    Stopped "stopped" "stopped or frozen from outside"
    Parked "parked" "asleep while another VM has its turn (unspin's coscheduling)"
}

impl State {
    pub const COUNT: usize = State::ALL.len();

    pub fn of_name(name: &str) -> Option<State> {
        State::ALL.iter().find(|state| state.name() == name).copied()
    }

    /// Whether the kernel serves an exit.
    pub fn is_exit(self) -> bool {
        (State::ExitPause..=State::ExitOther).contains(&self)
    }

    /// Whether it is on a CPU, so that the scheduler counts the time as the thread's CPU time.
    pub fn is_on_cpu(self) -> bool {
        (State::Guest..=State::Vmm).contains(&self)
    }

    /// Whether it is runnable without a CPU; the states differ by the task that has the CPU.
    pub fn is_ready(self) -> bool {
        (State::ReadySibling..=State::ReadyNobody).contains(&self)
    }
}

/// Time in each state, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times([u64; State::COUNT]);

impl Default for Times {
    fn default() -> Times {
        Times([0; State::COUNT])
    }
}

impl Times {
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The time in all of these states.
    pub fn of(&self, states: &[State]) -> u64 {
        states.iter().map(|state| self[*state]).sum()
    }

    /// The difference since `before`. A state whose time went back counts as unchanged.
    pub fn since(&self, before: &Times) -> Times {
        Times(std::array::from_fn(|i| self.0[i].saturating_sub(before.0[i])))
    }

    /// Each state with its time, without states that have none.
    pub fn spent(&self) -> impl Iterator<Item = (State, u64)> + '_ {
        State::ALL.iter().map(|state| (*state, self[*state])).filter(|(_, time)| *time > 0)
    }
}

/// By the states' names, without states that have no time.
impl Serialize for Times {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.spent().map(|(state, time)| (state.name(), time)))
    }
}

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Times, D::Error> {
        let mut times = Times::default();
        for (name, time) in BTreeMap::<String, u64>::deserialize(from)? {
            let state = State::of_name(&name);
            let state =
                state.ok_or_else(|| D::Error::custom(format!("{name:?} is not a state")))?;
            times[state] = time;
        }
        Ok(times)
    }
}

impl From<[u64; State::COUNT]> for Times {
    fn from(times: [u64; State::COUNT]) -> Times {
        Times(times)
    }
}

impl Index<State> for Times {
    type Output = u64;
    fn index(&self, state: State) -> &u64 {
        &self.0[state as usize]
    }
}

impl IndexMut<State> for Times {
    fn index_mut(&mut self, state: State) -> &mut u64 {
        &mut self.0[state as usize]
    }
}

impl AddAssign<&Times> for Times {
    fn add_assign(&mut self, other: &Times) {
        for (sum, time) in self.0.iter_mut().zip(&other.0) {
            *sum += time;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_names_of_one_state_each() {
        let names: BTreeSet<&str> = State::ALL.iter().map(|state| state.name()).collect();
        assert_eq!(names.len(), State::COUNT);
        for (index, state) in State::ALL.iter().enumerate() {
            assert_eq!(*state as usize, index);
            assert_eq!(State::of_name(state.name()), Some(*state));
            assert_eq!(state.is_exit(), state.name().starts_with("exit:"), "{state:?}");
            assert_eq!(state.is_on_cpu(), state.meaning().starts_with("on a CPU"), "{state:?}");
            assert_eq!(state.is_ready(), state.name().starts_with("ready:"), "{state:?}");
        }
    }

    #[test]
    fn times_are_written_and_read_by_name() {
        let mut times = Times::default();
        times[State::Guest] = 7;
        times[State::ReadyVm] = 9;
        let text = serde_json::to_string(&times).unwrap();
        assert_eq!(text, r#"{"guest":7,"ready:vm":9}"#);
        assert_eq!(serde_json::from_str::<Times>(&text).unwrap(), times);
        let wrong = serde_json::from_str::<Times>(r#"{"asleep":1}"#).unwrap_err();
        assert!(wrong.to_string().contains("\"asleep\" is not a state"), "{wrong}");
    }
}
