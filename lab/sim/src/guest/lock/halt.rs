// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting halted: HLT until another vCPU kicks it (KVM_HC_KICK_CPU; a program's futex).

use super::super::state::{Doing, Guest};
use crate::core::{Cause, Core, State};
use crate::engine::VcpuId;

impl Guest {
    /// `v` spun long enough: it halts, which takes until its thread is off its pCPU.
    pub(super) fn halt_in_lock(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &mut self.cpus[v];
        vcpu.run.doing = Doing::HaltLock;
        self.vms[core.vcpus[v].vm].lock_halts += 1;
        core.charge(v, core.prices.halt_ns, Cause::Idle);
    }

    pub(super) fn halts(&self, v: VcpuId) -> bool {
        self.cpus[v].run.doing == Doing::HaltLock
    }

    /// `by` pays for a kick.
    pub(super) fn charge_kick(&mut self, core: &mut Core, by: VcpuId) {
        core.charge(by, core.prices.kick_ns, Cause::Ipi);
        self.vms[core.vcpus[by].vm].kicks += 1;
    }

    /// `by` kicks `v`, which halts or is about to: it spins again, with a new budget.
    pub(super) fn kick(&mut self, core: &mut Core, by: VcpuId, v: VcpuId) {
        self.charge_kick(core, by);
        self.spin_again(core, v);
    }

    /// An interrupt ends the HLT of `v`, which waits for a lock.
    pub fn spin_again(&mut self, core: &mut Core, v: VcpuId) {
        self.account(core, v);
        core.stop_halt_poll(v);
        let off_ns = self.locks[self.cpus[v].wait.lock].off.at(core.now_ns);
        let vcpu = &mut self.cpus[v];
        vcpu.run.doing = Doing::SpinLock;
        core.vcpus[v].pauses.spun_ns = 0;
        vcpu.off_mark_ns = off_ns;
        vcpu.wait.budget_pending = true;
        if core.vcpus[v].on.state == State::Halted {
            self.wake(core, v);
        } else {
            self.touch(core, v);
        }
    }
}
