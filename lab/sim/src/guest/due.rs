// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a vCPU's guest does when the time of its action is over, and for what it waits, as far as
//! others may know.

use super::state::{Doing, Guest};
use crate::core::{Core, State};
use crate::engine::{Event, VcpuId, VmId};

/// An action that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It continues with its program.
    Program,
    /// It looks at its lock. It may also have spun for its window.
    Look,
    /// An action that concerns the guest alone ([`Guest::do_due`]).
    Other,
    /// It has spun for its window.
    PauseLoop,
    Halt,
}

impl Guest {
    /// The due action of `v`, which is running in its guest.
    #[inline]
    pub fn due(&mut self, core: &Core, v: VcpuId) -> Due {
        debug_assert!(core.vcpus[v].on.state == State::Running);
        debug_assert!(core.vcpus[v].ledger.host_ns() == 0);
        let cpu = &mut self.cpus[v];
        if cpu.answers_next() {
            return Due::Other;
        }
        match cpu.run.doing {
            Doing::Work => Due::Program,
            Doing::SpinLock => Due::Look,
            Doing::SpinAck if cpu.run.remaining_ns == 0 => {
                cpu.run.taken = false;
                Due::Program
            }
            Doing::SpinBarrier if cpu.run.remaining_ns == 0 => Due::Other,
            Doing::SendIpis => Due::Other,
            Doing::SpinBarrier | Doing::SpinAck | Doing::Poll => Due::PauseLoop,
            Doing::HaltBarrier | Doing::HaltBlock | Doing::HaltLock => Due::Halt,
        }
    }

    /// Performs a due action that concerns only the guest: `v` answers its siblings, falls asleep
    /// at its barrier, or has sent an interrupt.
    pub fn do_due(&mut self, core: &mut Core, v: VcpuId) {
        if self.cpus[v].answers_next() {
            self.answer(core, v);
        } else if self.cpus[v].run.doing == Doing::SpinBarrier {
            self.halt_at_barrier(core, v);
        } else {
            self.ipi_is_sent(core, v);
        }
    }

    /// Whether `v`, which has looked at its lock, has spun for its window as well.
    #[inline]
    pub fn stopped_spinning(&self, core: &Core, v: VcpuId) -> bool {
        let pauses = &core.vcpus[v].pauses;
        self.cpus[v].run.doing == Doing::SpinLock && pauses.spun_ns >= pauses.window_ns
    }

    /// `v` gets or loses its pCPU: updates its account, and the accounts of vCPUs that wait for its
    /// answer.
    #[inline]
    pub fn account_for_switch(&mut self, core: &mut Core, v: VcpuId) {
        self.account(core, v);
        if self.cpus[v].owes_acks {
            self.account_askers(core, v);
        }
    }

    /// `v` runs again: it answers at once, unless answers in its VM follow the handling of an
    /// interrupt.
    #[inline]
    pub fn answer_at_once(&mut self, core: &mut Core, v: VcpuId) {
        if self.cpus[v].owes_acks && !self.vms[core.vcpus[v].vm].handles_ipis {
            self.answer(core, v);
        }
    }

    /// `v` runs again: it may find that it has its lock.
    #[inline]
    pub fn notice(&mut self, core: &mut Core, v: VcpuId) {
        if self.cpus[v].notice_lock {
            self.notice_lock(core, v);
        }
    }

    /// The kernel of `vm` begins to tick.
    pub fn arm_ticks(&self, core: &mut Core, vm: VmId) {
        let tick_ns = self.vms[vm].tick_ns;
        let crate::core::Vm { first, vcpus, .. } = core.vms[vm];
        for v in first.and_next(vcpus).filter(|_| tick_ns > 0) {
            // Each vCPU ticks on its own grid, as with skew_tick=1.
            let offset = tick_ns * u64::from(v - first) / u64::from(vcpus);
            core.events.arm(Event::GuestTick(v), core.now_ns + 1 + offset);
        }
    }

    /// It spins in user space.
    pub fn is_in_user(&self, v: VcpuId) -> bool {
        self.cpus[v].run.user
    }

    pub fn waits_for_answers(&self, v: VcpuId) -> bool {
        self.cpus[v].run.doing == Doing::SpinAck
    }

    pub fn waits_for_lock(&self, v: VcpuId) -> bool {
        self.cpus[v].run.doing == Doing::SpinLock
    }

    /// Whether `v`, spinning, waits for `u`, of the same VM.
    pub fn awaits(&self, core: &Core, v: VcpuId, u: VcpuId) -> bool {
        if self.waits_for_answers(v) {
            let acks = &self.vms[core.vcpus[v].vm].acks;
            let asked = acks.get(core.vcpus[u].index as usize);
            return asked.is_some_and(|askers| askers.contains(&core.vcpus[v].index));
        }
        // It holds the lock, or is next for it.
        self.waits_for_lock(v)
            && self.cpus[u].owned & 1 << self.lock_number(self.cpus[v].wait.lock) != 0
    }
}
