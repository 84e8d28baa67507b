// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared state of a vCPU.

use super::ledger::{Cause, Ledger};
use crate::engine::{PcpuId, VmId};

/// Whether a vCPU is on a pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not started, or asleep in HLT.
    Halted,
    Ready,
    Running,
}

/// A vCPU enters a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub at_ns: u64,
    /// Number within its VM.
    pub vcpu: u32,
    pub to: State,
}

/// Where it is.
#[derive(Debug, Clone)]
pub struct Placement {
    pub state: State,
    /// The pCPU on which it is, in whose queue it is, or on which it was last.
    pub pcpu: PcpuId,
    pub pinned: bool,
    /// Why it is off its pCPU.
    pub off_cause: Cause,
}

/// The processor's detection of its pause loop.
#[derive(Debug, Clone)]
pub struct PauseLoop {
    /// Length of the loop since the last entry.
    pub spun_ns: u64,
    /// The time after which the present window stops a loop; `u64::MAX`: never.
    pub window_ns: u64,
}

/// What the host still has to do for it before its guest continues.
#[derive(Debug, Clone, Default)]
pub struct Handling {
    /// One of its PLE exits is being handled.
    pub in_ple_exit: bool,
    /// Its PLE exit has not chosen a target yet. It does so once the host time before that is
    /// spent.
    pub undecided: bool,
    /// Its pCPU reschedules before returning to its guest.
    pub need_resched: bool,
    /// KVM polls until it is woken.
    pub halt_polls: bool,
}

impl Handling {
    /// Whether the host has something to do for it once its host time is spent.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.undecided || self.need_resched
    }
}

#[derive(Debug, Clone)]
pub struct Vcpu {
    pub vm: VmId,
    /// Number within its VM.
    pub index: u32,
    pub on: Placement,
    /// It runs, and the other thread of its core runs a vCPU, too.
    pub shares_core: bool,
    pub exit: Handling,
    pub pauses: PauseLoop,
    pub ledger: Ledger,
}

impl Vcpu {
    pub fn new(vm: VmId, index: u32, pcpu: PcpuId, pinned: bool) -> Vcpu {
        Vcpu {
            vm,
            index,
            on: Placement { state: State::Halted, pcpu, pinned, off_cause: Cause::Other },
            shares_core: false,
            exit: Handling::default(),
            pauses: PauseLoop { spun_ns: 0, window_ns: 0 },
            ledger: Ledger::default(),
        }
    }
}
