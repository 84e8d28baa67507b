// SPDX-License-Identifier: MIT OR Apache-2.0
//! Preemptable ticket locks (locks/preemptable.h, pv_preemptable.h; VEE'13 sections 4 and 5).
//!
//! A waiter with n requests before it waits n * tau, anew whenever n changes, and then competes: it
//! takes the lock as soon as it finds it free, whoever is next in line. The clock goes on while a
//! waiter is off its pCPU; back, it finds its time over, or n smaller and a new time begun, or itself
//! passed by, and then it competes too. Whether a spinner's time is over matters only to a release,
//! and while the lock is free; so only then is it looked at, but for locks that halt.

use super::params::FOREVER;
use super::{Protocol, Sim};
use crate::engine::{LockId, VcpuId};
use crate::sched::NONE;

impl Sim {
    fn preemptable_params(&self, index: LockId) -> (u64, u64) {
        let Protocol::Preemptable { tau_ns, halt_ns } = self.locks[index].protocol else {
            unreachable!()
        };
        (self.lock_budget_ns(tau_ns), self.lock_budget_ns(halt_ns))
    }

    /// When the time of `v` is over, if n does not change.
    fn preemptable_deadline_ns(&self, v: VcpuId) -> u64 {
        let wait = &self.vcpus[v].wait;
        let (tau_ns, _) = self.preemptable_params(wait.lock);
        let lock = &self.locks[wait.lock];
        let ahead = wait.ticket.saturating_sub(lock.granted);
        if ahead == 0 {
            return 0;
        }
        wait.since_ns.max(lock.granted_at_ns).saturating_add(tau_ns.saturating_mul(ahead))
    }

    fn preemptable_compete(&mut self, v: VcpuId, index: LockId) {
        let (_, halt_ns) = self.preemptable_params(index);
        self.set_competing(v, index);
        self.vcpus[v].wait.until_ns = self.now_ns.saturating_add(halt_ns);
    }

    /// `v` has drawn its number. Whether it has the lock at once: free, and its time, of length 0,
    /// is over.
    pub(super) fn preemptable_begin(&mut self, v: VcpuId) -> bool {
        let index = self.vcpus[v].wait.lock;
        if self.preemptable_deadline_ns(v) > self.now_ns {
            return false;
        }
        if self.locks[index].owner == NONE {
            self.leave_queue(v, index);
            self.vcpus[v].wait.lock = LockId::NONE;
            self.own_at_once(v, index);
            return true;
        }
        self.preemptable_compete(v, index);
        false
    }

    pub(super) fn preemptable_look_ns(&self, v: VcpuId) -> u64 {
        let vcpu = &self.vcpus[v];
        let lock = &self.locks[vcpu.wait.lock];
        let Protocol::Preemptable { halt_ns, .. } = lock.protocol else { unreachable!() };
        if vcpu.host_ns() > 0 {
            0
        } else if vcpu.wait.competing {
            vcpu.wait.budget_end_ns()
        } else if lock.owner == NONE || halt_ns != FOREVER {
            self.preemptable_deadline_ns(v)
        } else {
            u64::MAX
        }
    }

    pub(super) fn preemptable_look(&mut self, v: VcpuId, index: LockId) -> bool {
        let now = self.now_ns;
        let lock = &self.locks[index];
        let wait = &mut self.vcpus[v].wait;
        if !wait.competing {
            if lock.granted_at_ns > wait.seen_ns {
                wait.since_ns = now;
            }
            if self.preemptable_deadline_ns(v) <= now {
                self.preemptable_compete(v, index);
            }
        }
        if !self.vcpus[v].wait.competing {
            return false;
        }
        if self.try_free(v, index) {
            return true;
        }
        let (_, halt_ns) = self.preemptable_params(index);
        if self.vcpus[v].wait.budget_spent(now, halt_ns) {
            self.halt_in_lock(v);
        }
        false
    }

    /// Whoever spins, or spun until it left its guest, past its time: it competes from then on,
    /// whatever n becomes. Accounts for every waiter.
    fn preemptable_time_out(&mut self, index: LockId) {
        let granted_at_ns = self.locks[index].granted_at_ns;
        let mut v = self.locks[index].head;
        while v != NONE {
            self.account(v);
            let seen_ns =
                if self.is_in_guest(v) { self.now_ns } else { self.vcpus[v].wait.seen_ns };
            let wait = &self.vcpus[v].wait;
            let saw_grant = seen_ns >= granted_at_ns;
            if !wait.competing && saw_grant && self.preemptable_deadline_ns(v) <= seen_ns {
                self.preemptable_compete(v, index);
            }
            v = self.vcpus[v].wait.behind;
        }
    }

    pub(super) fn preemptable_release(&mut self, by: VcpuId, index: LockId) {
        let (tau_ns, halt_ns) = self.preemptable_params(index);
        // Everybody's present time began at the last grant or later.
        if self.now_ns >= self.locks[index].granted_at_ns.saturating_add(tau_ns) {
            self.preemptable_time_out(index);
        }
        let lock = &mut self.locks[index];
        lock.granted += 1;
        lock.granted_at_ns = self.now_ns;
        let (head, granted, competing) = (lock.head, lock.granted, lock.competing);
        self.account(head);
        let in_turn = self.vcpus[head].wait.ticket == granted;
        if competing == 0 && in_turn && self.is_in_guest(head) {
            self.hand_over(head, index);
            return;
        }
        let mut v = head;
        while v != NONE && self.vcpus[v].wait.ticket <= granted {
            self.account(v);
            if self.is_in_guest(v) && !self.vcpus[v].wait.competing {
                self.preemptable_compete(v, index);
            }
            v = self.vcpus[v].wait.behind;
        }
        let next = self.draw_spinner(index, |vcpu| vcpu.wait.competing);
        if next == NONE {
            self.set_heir(head, index);
        } else {
            self.hand_over(next, index);
        }
        if next == NONE || halt_ns != FOREVER {
            self.preemptable_settle(by, index);
        }
    }

    /// After a release that did not just go to the next in line: everybody who halts is kicked, and
    /// who spins has a new time to look at the lock, or to halt.
    fn preemptable_settle(&mut self, by: VcpuId, index: LockId) {
        let mut v = self.locks[index].head;
        while v != NONE {
            let behind = self.vcpus[v].wait.behind;
            if self.halts(v) {
                self.kick(by, v);
            } else if self.is_in_guest(v) {
                self.rearm(v);
            }
            v = behind;
        }
    }
}
