// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all rooms may know of a vCPU.

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

/// Where it is.
#[derive(Debug, Clone)]
pub struct Placement {
    pub state: State,
    /// The pCPU it is on, or in whose queue, or was on last.
    pub pcpu: PcpuId,
    pub pinned: bool,
    /// Why it is off its pCPU.
    pub off_cause: Cause,
}

/// The processor's counting of its pause loop.
#[derive(Debug, Clone)]
pub struct PauseLoop {
    /// Length of the loop since the last entry.
    pub spun_ns: u64,
    /// When a loop begun at 0 is stopped by the window in force; `u64::MAX`: never.
    pub window_ns: u64,
}

/// What the host still has to do with it before its guest continues.
#[derive(Debug, Clone, Default)]
pub struct Handling {
    /// A PLE exit of it is being handled.
    pub in_ple_exit: bool,
    /// Its PLE exit has not chosen a target yet; it does when the host time before that is spent.
    pub undecided: bool,
    /// Its pCPU schedules before it goes back to its guest.
    pub need_resched: bool,
    /// KVM polls for its wake-up.
    pub halt_polls: bool,
}

impl Handling {
    /// Whether the host has something to do with it once its host time is spent.
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
            ledger: Ledger::NEW,
        }
    }
}
