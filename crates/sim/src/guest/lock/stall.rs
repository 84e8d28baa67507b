// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stalls: waits that spin for longer than a lock is held by somebody who runs (VEE'13 section 3).
//!
//! As the paper counts them: when a waiter has spun for the threshold, is the lock in fact free? Then
//! the next in line is off its pCPU. Off unless a set-up asks for it; counting changes nothing else.

use super::super::state::{Doing, Guest};
use crate::core::{Core, State};
use crate::engine::{Event, VcpuId};

impl Guest {
    /// `v` runs: sets the timer that counts its stall, which no other event depends on.
    pub fn arm_stall(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &self.cpus[v];
        if vcpu.run.doing != Doing::SpinLock || vcpu.wait.stalled {
            return;
        }
        let left_ns =
            core.vcpus[v].ledger.host_ns() + self.stall_ns.saturating_sub(vcpu.wait.spun_ns);
        core.events.arm(Event::Stall(v), core.now_ns + left_ns);
    }

    /// The timer has gone off; `v` may have been interrupted, or have its lock.
    pub fn note_stall(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &self.cpus[v];
        let spins = vcpu.run.doing == Doing::SpinLock && !vcpu.wait.stalled;
        if !spins || core.vcpus[v].on.state != State::Running {
            return;
        }
        self.account(core, v);
        let vcpu = &mut self.cpus[v];
        if vcpu.wait.spun_ns < self.stall_ns {
            return;
        }
        vcpu.wait.stalled = true;
        let (vm, lock) = (core.vcpus[v].vm, &self.locks[vcpu.wait.lock]);
        let stalls = &mut self.vms[vm].stalls;
        let owner = self.cpus.get(lock.owner);
        match owner {
            Some(owner) if !owner.notice_lock && owner.wait.took_ns <= core.now_ns => {
                let runs = core.vcpus[lock.owner].on.state == State::Running;
                stalls.holder_running += u64::from(runs);
                stalls.holder_preempted += u64::from(!runs);
            }
            // Nobody has taken it, or one who could not notice yet, or whose write of its number
            // (the paper's holder_id) is still on its way.
            _ => {
                debug_assert!(lock.owner != VcpuId::NONE || lock.waiters > 0);
                stalls.waiter_preempted += 1;
            }
        }
    }
}
