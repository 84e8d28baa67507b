// SPDX-License-Identifier: MIT OR Apache-2.0
//! Preemptable ticket locks (core/locks/preemptable.h, pv_preemptable.h; VEE'13 sections 4 and 5).
//!
//! A waiter with n requests before it waits n * tau, starting again whenever n changes, and then
//! competes: it takes the lock as soon as it finds it free, whichever waiter is next in line. The
//! time passes while a waiter is off its pCPU. When it returns, it finds its time over, or a
//! smaller n with a new time, or that it was overtaken; then it competes, too. Whether a spinner's
//! time is over matters only to a release, and while the lock is free. So it is checked only then,
//! except for locks that halt.

use super::super::state::Guest;
use super::params::FOREVER;
use super::protocol::Preemptable;
use crate::core::Core;
use crate::engine::{LockId, VcpuId};

impl Guest {
    fn preemptable_params(&self, index: LockId) -> (u64, u64) {
        let &Preemptable { tau_ns, halt_ns, .. } = self.locks[index].preemptable();
        (self.lock_budget_ns(tau_ns), self.lock_budget_ns(halt_ns))
    }

    /// When the time of `v` ends, if n does not change.
    fn preemptable_deadline_ns(&self, v: VcpuId) -> u64 {
        let wait = &self.cpus[v].wait;
        let (tau_ns, _) = self.preemptable_params(wait.lock);
        let lock = &self.locks[wait.lock];
        let ahead = wait.ticket.saturating_sub(lock.releases);
        if ahead == 0 {
            return 0;
        }
        wait.since_ns
            .max(lock.preemptable().last_release_ns)
            .saturating_add(tau_ns.saturating_mul(ahead))
    }

    fn preemptable_compete(&mut self, core: &mut Core, v: VcpuId, index: LockId) {
        let (_, halt_ns) = self.preemptable_params(index);
        self.set_competing(v);
        self.locks[index].preemptable_mut().competing += 1;
        self.cpus[v].wait.until_ns = core.now_ns.saturating_add(halt_ns);
    }

    /// `v` has drawn its number. Returns whether it has the lock at once: the lock is free, and its
    /// time, of length 0, is over.
    pub(super) fn preemptable_begin(&mut self, core: &mut Core, v: VcpuId) -> bool {
        let index = self.cpus[v].wait.lock;
        if self.preemptable_deadline_ns(v) > core.now_ns {
            return false;
        }
        if self.locks[index].owner == VcpuId::NONE {
            self.leave_queue(v, index);
            self.cpus[v].wait.lock = LockId::NONE;
            self.own_at_once(core, v, index);
            return true;
        }
        self.preemptable_compete(core, v, index);
        false
    }

    pub(super) fn preemptable_look_ns(&self, core: &Core, v: VcpuId) -> u64 {
        let vcpu = &self.cpus[v];
        let lock = &self.locks[vcpu.wait.lock];
        let halt_ns = lock.preemptable().halt_ns;
        if core.vcpus[v].ledger.host_ns() > 0 {
            0
        } else if vcpu.wait.competing {
            vcpu.wait.budget_end_ns()
        } else if lock.owner == VcpuId::NONE || halt_ns != FOREVER {
            self.preemptable_deadline_ns(v)
        } else {
            u64::MAX
        }
    }

    pub(super) fn preemptable_look(&mut self, core: &mut Core, v: VcpuId, index: LockId) -> bool {
        let now = core.now_ns;
        let lock = &self.locks[index];
        let wait = &mut self.cpus[v].wait;
        if !wait.competing {
            if lock.preemptable().last_release_ns > wait.seen_ns {
                wait.since_ns = now;
            }
            if self.preemptable_deadline_ns(v) <= now {
                self.preemptable_compete(core, v, index);
            }
        }
        if !self.cpus[v].wait.competing {
            return false;
        }
        if self.try_free(core, v, index) {
            return true;
        }
        let (_, halt_ns) = self.preemptable_params(index);
        if self.cpus[v].wait.budget_spent(now, halt_ns) {
            self.halt_in_lock(core, v);
        }
        false
    }

    /// All that spin, or spun until they left their guests, beyond their time compete from now on,
    /// whatever n becomes. Accounts for every waiter.
    fn preemptable_time_out(&mut self, core: &mut Core, index: LockId) {
        let last_release_ns = self.locks[index].preemptable().last_release_ns;
        let mut v = self.locks[index].head;
        while v != VcpuId::NONE {
            self.account(core, v);
            let seen_ns =
                if self.is_in_guest(core, v) { core.now_ns } else { self.cpus[v].wait.seen_ns };
            let wait = &self.cpus[v].wait;
            let saw_grant = seen_ns >= last_release_ns;
            if !wait.competing && saw_grant && self.preemptable_deadline_ns(v) <= seen_ns {
                self.preemptable_compete(core, v, index);
            }
            v = self.cpus[v].wait.behind;
        }
    }

    pub(super) fn preemptable_release(&mut self, core: &mut Core, by: VcpuId, index: LockId) {
        let (tau_ns, halt_ns) = self.preemptable_params(index);
        // The present time of all waiters began at the last grant or later.
        let last_ns = self.locks[index].preemptable().last_release_ns;
        if core.now_ns >= last_ns.saturating_add(tau_ns) {
            self.preemptable_time_out(core, index);
        }
        let lock = &mut self.locks[index];
        lock.releases += 1;
        let (head, granted) = (lock.head, lock.releases);
        let kept = lock.preemptable_mut();
        kept.last_release_ns = core.now_ns;
        let competing = kept.competing;
        self.account(core, head);
        let in_turn = self.cpus[head].wait.ticket == granted;
        if competing == 0 && in_turn && self.is_in_guest(core, head) {
            self.hand_over(core, head, index);
            return;
        }
        let mut v = head;
        while v != VcpuId::NONE && self.cpus[v].wait.ticket <= granted {
            self.account(core, v);
            if self.is_in_guest(core, v) && !self.cpus[v].wait.competing {
                self.preemptable_compete(core, v, index);
            }
            v = self.cpus[v].wait.behind;
        }
        let next = self.draw_spinner(core, index, |vcpu| vcpu.wait.competing);
        if next == VcpuId::NONE {
            self.set_absent_next(core, head, index);
        } else {
            self.hand_over(core, next, index);
        }
        if next == VcpuId::NONE || halt_ns != FOREVER {
            self.preemptable_settle(core, by, index);
        }
    }

    /// After a release that did not go straight to the next in line: kicks all halted waiters, and
    /// gives spinning ones a new time to check the lock, or to halt.
    fn preemptable_settle(&mut self, core: &mut Core, by: VcpuId, index: LockId) {
        let mut v = self.locks[index].head;
        while v != VcpuId::NONE {
            let behind = self.cpus[v].wait.behind;
            if self.halts(v) {
                self.kick(core, by, v);
            } else if self.is_in_guest(core, v) {
                self.touch(core, v);
            }
            v = behind;
        }
    }
}
