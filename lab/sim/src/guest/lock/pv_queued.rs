// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queued lock with halting waiters (core/locks/pv_queued.h): the first waits for the lock, the others
//! to be first. A newcomer that finds the lock free takes it, unless the first spins. A newcomer that
//! finds it held queues; the header's spins for it while the first halts.

use super::super::state::Guest;
use super::protocol::Protocol;
use crate::core::Core;
use crate::engine::{LockId, VcpuId};

impl Guest {
    fn pv_queued_spin_ns(&self, index: LockId) -> u64 {
        let Protocol::PvQueued { spin_ns, .. } = self.locks[index].protocol else { unreachable!() };
        self.lock_budget_ns(spin_ns)
    }

    pub(super) fn pv_queued_begin(&mut self, core: &mut Core, v: VcpuId) {
        let index = self.cpus[v].wait.lock;
        let ns = self.pv_queued_spin_ns(index);
        self.cpus[v].wait.until_ns = core.now_ns.saturating_add(ns);
        if self.locks[index].head == v {
            self.set_competing(v);
            self.cpus[v].wait.pending = true;
        }
    }

    pub(super) fn pv_queued_look(&mut self, core: &mut Core, v: VcpuId, index: LockId) -> bool {
        let wait = &mut self.cpus[v].wait;
        wait.pending = wait.competing;
        if wait.competing && self.locks[index].owner == VcpuId::NONE {
            self.pv_queued_take(core, v, index);
            return true;
        }
        let (now, ns) = (core.now_ns, self.pv_queued_spin_ns(index));
        if self.cpus[v].wait.budget_spent(now, ns) {
            self.cpus[v].wait.pending = false;
            self.halt_in_lock(core, v);
        }
        false
    }

    /// The lock is free: the first waiter gets it if it spins. Otherwise it is kicked, or finds it
    /// at its next check.
    pub(super) fn pv_queued_release(&mut self, core: &mut Core, by: VcpuId, index: LockId) {
        let lock = &mut self.locks[index];
        lock.releases += 1;
        let first = lock.head;
        self.account(core, first);
        if self.is_in_guest(core, first) {
            self.pv_queued_take(core, first, index);
            return;
        }
        self.set_absent_next(core, first, index);
        if self.halts(first) {
            self.kick(core, by, first);
        }
    }

    /// `v`, the first, has the lock, and says to the next that it is first now. If that one halts, `v`
    /// kicks it if nobody overtakes the queue, as Linux 4.2 did; otherwise the release does.
    fn pv_queued_take(&mut self, core: &mut Core, v: VcpuId, index: LockId) {
        let first = self.cpus[v].wait.behind;
        self.hand_over(core, v, index);
        if first == VcpuId::NONE {
            return;
        }
        self.account(core, first);
        self.set_competing(first);
        if !self.halts(first) {
            self.cpus[first].wait.pending = self.is_in_guest(core, first);
            self.cpus[first].wait.budget_pending = true;
            self.touch(core, first);
        } else if self.locks[index].protocol.is_in_order() {
            self.kick(core, v, first);
            self.touch(core, v);
        }
    }
}
