// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stalls: waits in which a waiter spins for longer than a running vCPU holds a lock (VEE'13
//! section 3).
//!
//! As in the paper: if the lock is free when a waiter has spun for the threshold, the next in line
//! has no pCPU. The threshold is a set-up's own, or each power of two of iterations of the waiter's
//! loop, as in the guest's image that counts them (`guest/main.c`: `note_stall()`). Off by default.
//! Counting does not change what vCPUs do.

use super::super::state::{Doing, Guest};
use super::state::Wait;
use crate::core::{Core, State};
use crate::engine::{Event, LockId, VcpuId};
use unspin_guest_abi::STALL_BUCKETS;

/// The state of a lock when a wait for it became long.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Free,
    HolderRunning,
    HolderPreempted,
}

impl Guest {
    /// `v` runs: sets the timer that counts its stall. No other event depends on that timer.
    pub fn arm_stall(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &self.cpus[v];
        if vcpu.run.doing != Doing::SpinLock {
            return;
        }
        let next_ns = self.stall_after_ns(&vcpu.wait).min(self.turns_after_ns(core, &vcpu.wait));
        if next_ns != u64::MAX {
            let left_ns =
                core.vcpus[v].ledger.host_ns() + next_ns.saturating_sub(vcpu.wait.spun_ns);
            core.events.arm(Event::Stall(v), core.now_ns + left_ns);
        }
    }

    /// The spinning time that makes `wait` a stall, ns; `u64::MAX`: none, or it was already
    /// counted.
    fn stall_after_ns(&self, wait: &Wait) -> u64 {
        if wait.stalled {
            u64::MAX
        } else {
            self.stall_ns
        }
    }

    /// Spinning time until the next power of two of iterations of the loop, ns; `u64::MAX`: not
    /// counted. An iteration takes the host's cost.
    fn turns_after_ns(&self, core: &Core, wait: &Wait) -> u64 {
        if self.counts_turns && usize::from(wait.turns_seen) < STALL_BUCKETS {
            core.clock.ns(core.prices.pause_loop_cycles << wait.turns_seen)
        } else {
            u64::MAX
        }
    }

    /// The timer fired. Meanwhile `v` may have been interrupted, or got its lock.
    pub fn note_stall(&mut self, core: &mut Core, v: VcpuId) {
        if self.cpus[v].run.doing != Doing::SpinLock || core.vcpus[v].on.state != State::Running {
            return;
        }
        self.account(core, v);
        let (vm, wait) = (core.vcpus[v].vm, self.cpus[v].wait);
        if wait.spun_ns >= self.stall_after_ns(&wait) {
            self.cpus[v].wait.stalled = true;
            let found = self.found(core, wait.lock);
            let stalls = &mut self.vms[vm].stalls;
            match found {
                Found::Free => stalls.waiter_preempted += 1,
                Found::HolderRunning => stalls.holder_running += 1,
                Found::HolderPreempted => stalls.holder_preempted += 1,
            }
        }
        if self.counts_turns {
            self.note_turns(core, v);
            self.arm_stall(core, v);
        }
    }

    /// Counts the powers of two of iterations that the wait of `v` has reached.
    fn note_turns(&mut self, core: &Core, v: VcpuId) {
        let mut wait = self.cpus[v].wait;
        let is_held = self.found(core, wait.lock) != Found::Free;
        while wait.spun_ns >= self.turns_after_ns(core, &wait) {
            let bucket = usize::from(wait.turns_seen);
            if let Some(turns) = &mut self.vms[core.vcpus[v].vm].turns {
                turns.free[bucket] += u64::from(!is_held);
                turns.held[bucket] += u64::from(is_held);
            }
            wait.turns_seen += 1;
        }
        self.cpus[v].wait.turns_seen = wait.turns_seen;
    }

    fn found(&self, core: &Core, index: LockId) -> Found {
        let lock = &self.locks[index];
        match self.cpus.get(lock.owner) {
            Some(owner) if !owner.notice_lock && owner.wait.owns_from_ns <= core.now_ns => {
                match core.vcpus[lock.owner].on.state {
                    State::Running => Found::HolderRunning,
                    State::Ready | State::Halted => Found::HolderPreempted,
                }
            }
            // No vCPU has taken it, or one that has not noticed yet, or whose write of its number
            // (the paper's holder_id) is not visible yet.
            _ => {
                debug_assert!(lock.owner != VcpuId::NONE || lock.waiters > 0);
                Found::Free
            }
        }
    }
}
