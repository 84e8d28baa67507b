// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queued lock with halting waiters (locks/pv_queued.h): the first waits for the lock, the others
//! to be first, and a newcomer that finds the lock free takes it.

use super::{Protocol, Sim};
use crate::engine::{LockId, VcpuId};
use crate::sched::NONE;

impl Sim {
    fn pv_queued_spin_ns(&self, index: LockId) -> u64 {
        let Protocol::PvQueued { spin_ns, .. } = self.locks[index].protocol else { unreachable!() };
        self.lock_budget_ns(spin_ns)
    }

    pub(super) fn pv_queued_begin(&mut self, v: VcpuId) {
        let index = self.vcpus[v].wait.lock;
        let ns = self.pv_queued_spin_ns(index);
        self.vcpus[v].wait.until_ns = self.now_ns.saturating_add(ns);
        if self.locks[index].head == v {
            self.set_competing(v, index);
        }
    }

    pub(super) fn pv_queued_look(&mut self, v: VcpuId, index: LockId) -> bool {
        let wait = &self.vcpus[v].wait;
        if wait.competing && self.locks[index].owner == NONE {
            self.pv_queued_take(v, index);
            return true;
        }
        let (now, ns) = (self.now_ns, self.pv_queued_spin_ns(index));
        if self.vcpus[v].wait.budget_spent(now, ns) {
            self.halt_in_lock(v);
        }
        false
    }

    /// The lock is free: the first has it if it spins, else it is kicked or finds it when it looks.
    pub(super) fn pv_queued_release(&mut self, by: VcpuId, index: LockId) {
        let lock = &mut self.locks[index];
        lock.granted += 1;
        let first = lock.head;
        self.account(first);
        if self.is_in_guest(first) {
            self.pv_queued_take(first, index);
            return;
        }
        self.set_heir(first, index);
        if self.halts(first) {
            self.kick(by, first);
        }
    }

    /// `v`, the first, has the lock, and says to the next that it is first now.
    fn pv_queued_take(&mut self, v: VcpuId, index: LockId) {
        let first = self.vcpus[v].wait.behind;
        self.hand_over(v, index);
        if first == NONE {
            return;
        }
        self.account(first);
        self.set_competing(first, index);
        if self.halts(first) {
            self.kick(v, first);
            self.rearm(v);
        } else {
            self.vcpus[first].wait.budget_pending = true;
            self.rearm(first);
        }
    }
}
