// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting halted: HLT until somebody kicks the vCPU (KVM_HC_KICK_CPU; a program's futex).

use super::Sim;
use crate::engine::VcpuId;
use crate::state::{Cause, Doing, State};

impl Sim {
    /// `v` spun long enough: it halts, which takes until its thread is off its pCPU.
    pub(super) fn halt_in_lock(&mut self, v: VcpuId) {
        let vcpu = &mut self.vcpus[v];
        vcpu.doing = Doing::HaltLock;
        self.vms[vcpu.vm].lock_halts += 1;
        self.charge(v, self.halt_ns, Cause::Idle);
    }

    pub(super) fn halts(&self, v: VcpuId) -> bool {
        self.vcpus[v].doing == Doing::HaltLock
    }

    /// `by` pays for a kick.
    pub(super) fn charge_kick(&mut self, by: VcpuId) {
        self.charge(by, self.kick_ns, Cause::Ipi);
        let vcpu = &self.vcpus[by];
        self.vms[vcpu.vm].module.stats.hypercalls_kick += 1;
    }

    /// `by` kicks `v`, which halts or is about to: it spins again, with a new budget.
    pub(super) fn kick(&mut self, by: VcpuId, v: VcpuId) {
        self.charge_kick(by);
        self.spin_again(v);
    }

    /// An interrupt ends the HLT of `v`, which waits for a lock.
    pub(crate) fn spin_again(&mut self, v: VcpuId) {
        self.account(v);
        self.stop_halt_poll(v);
        let off_ns = self.locks[self.vcpus[v].wait.lock].off.at(self.now_ns);
        let vcpu = &mut self.vcpus[v];
        vcpu.doing = Doing::SpinLock;
        vcpu.spun_ns = 0;
        vcpu.off_mark_ns = off_ns;
        vcpu.wait.budget_pending = true;
        if vcpu.state == State::Halted {
            self.wake(v);
        } else {
            self.rearm(v);
        }
    }
}
