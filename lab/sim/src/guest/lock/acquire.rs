// SPDX-License-Identifier: MIT OR Apache-2.0
//! A vCPU takes a lock, releases it, or checks the one for which it waits. This file has the common
//! part of all protocols, and those without a choice (core/locks/ticket.h, mcs.h, tas.h). For the
//! others a file per family determines the next owner and the behaviour of waiters.

use super::super::state::{Doing, Guest};
use super::protocol::Protocol;
use super::state::Wait;
use crate::core::Core;
use crate::engine::VcpuId;

impl Guest {
    /// The budget of a lock from its header, in this host's time.
    #[inline]
    pub(super) fn lock_budget_ns(&self, ns: u64) -> u64 {
        let (times, by) = self.lock_time;
        if times == by || ns == u64::MAX {
            return ns;
        }
        let scaled = u128::from(ns) * u128::from(times) / u128::from(by);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Whether `v`, running, gets the lock at once; otherwise it waits.
    pub fn lock(&mut self, core: &mut Core, v: VcpuId, number: u32) -> bool {
        let index = self.lock_index(core, v, number);
        let now = core.now_ns;
        let lock = &self.locks[index];
        let others_first = match lock.protocol {
            Protocol::Preemptable(_) | Protocol::PvQueued { in_order: true, .. } => {
                lock.waiters > 0
            }
            Protocol::Lease(kept) => kept.wish,
            Protocol::PvQueued { in_order: false, .. } => {
                lock.head != VcpuId::NONE && self.cpus[lock.head].wait.pending
            }
            Protocol::Fifo { .. } | Protocol::Tas | Protocol::PvTicket { .. } => false,
        };
        let lock = &mut self.locks[index];
        let ticket = lock.requests;
        lock.requests += 1;
        if lock.owner == VcpuId::NONE && !others_first {
            self.own_at_once(core, v, index);
            return true;
        }
        self.join_queue(v, index);
        let lock = &self.locks[index];
        let protocol = lock.protocol;
        let (off_mark_ns, granted) = (lock.off.at(now), lock.releases);
        let vcpu = &mut self.cpus[v];
        vcpu.off_mark_ns = off_mark_ns;
        vcpu.run.doing = Doing::SpinLock;
        core.vcpus[v].pauses.spun_ns = 0;
        let wait = &mut vcpu.wait;
        *wait = Wait {
            lock: index,
            ticket,
            ahead: (ticket - granted) as u32,
            since_ns: now,
            seen_ns: now,
            began_ns: now,
            ..Wait::default()
        };
        match protocol {
            Protocol::Fifo { .. } | Protocol::Tas => false,
            Protocol::Preemptable(_) => self.preemptable_begin(core, v),
            Protocol::PvTicket { .. } => {
                self.pv_ticket_spin(core, v);
                false
            }
            Protocol::PvQueued { .. } => {
                self.pv_queued_begin(core, v);
                false
            }
            Protocol::Lease(_) => {
                self.lease_begin(core, v);
                false
            }
        }
    }

    pub fn unlock(&mut self, core: &mut Core, v: VcpuId, number: u32) {
        let index = self.lock_index(core, v, number);
        let vcpu = &mut self.cpus[v];
        assert!(vcpu.owned & 1 << number != 0, "vCPU {v} releases a lock it does not hold");
        vcpu.owned &= !(1 << number);
        let lock = &mut self.locks[index];
        debug_assert_eq!(lock.owner, v);
        lock.owner = VcpuId::NONE;
        lock.off.set(false, core.now_ns);
        if lock.head == VcpuId::NONE {
            lock.releases += 1;
            if let Protocol::Preemptable(kept) = &mut lock.protocol {
                kept.last_release_ns = core.now_ns;
            }
            return;
        }
        match lock.protocol {
            Protocol::Fifo { .. } => {
                lock.releases += 1;
                let next = lock.head;
                self.hand_over(core, next, index);
            }
            Protocol::Tas => {
                lock.releases += 1;
                let next = self.draw_spinner(core, index, |_| true);
                if next != VcpuId::NONE {
                    self.hand_over(core, next, index);
                }
            }
            Protocol::Preemptable(_) => self.preemptable_release(core, v, index),
            Protocol::PvTicket { kicks, .. } => self.pv_ticket_release(core, v, index, kicks),
            Protocol::PvQueued { .. } => self.pv_queued_release(core, v, index),
            Protocol::Lease(_) => self.lease_release(core, index),
        }
    }

    /// A spinner checks its lock, because it is back in its guest or its time is over. Returns
    /// whether it has the lock.
    pub fn look(&mut self, core: &mut Core, v: VcpuId) -> bool {
        let index = self.cpus[v].wait.lock;
        let lock = &self.locks[index];
        let has_it = match lock.protocol {
            Protocol::Fifo { .. } => false,
            Protocol::Tas => self.try_free(core, v, index),
            Protocol::Preemptable(_) => self.preemptable_look(core, v, index),
            Protocol::PvTicket { .. } => {
                self.pv_ticket_look(core, v);
                false
            }
            Protocol::PvQueued { .. } => self.pv_queued_look(core, v, index),
            Protocol::Lease(_) => self.lease_look(core, v, index),
        };
        self.cpus[v].wait.seen_ns = core.now_ns;
        has_it
    }

    /// The time for which `v`, spinning, may spin in its guest before it has to check its lock; 0:
    /// none.
    pub fn until_look_ns(&self, core: &Core, v: VcpuId) -> u64 {
        let vcpu = &self.cpus[v];
        let lock = &self.locks[vcpu.wait.lock];
        let at_ns = match lock.protocol {
            Protocol::Fifo { .. } => return u64::MAX,
            Protocol::Tas if core.vcpus[v].ledger.host_ns() > 0 => 0,
            Protocol::Tas => u64::MAX,
            Protocol::Preemptable(_) => self.preemptable_look_ns(core, v),
            Protocol::PvTicket { .. } => vcpu.wait.budget_end_ns(),
            Protocol::PvQueued { .. } if core.vcpus[v].ledger.host_ns() > 0 => 0,
            Protocol::PvQueued { .. } => vcpu.wait.budget_end_ns(),
            Protocol::Lease(_) => self.lease_look_ns(core, v),
        };
        let spins_from_ns = core.now_ns + core.vcpus[v].ledger.host_ns();
        at_ns.saturating_sub(spins_from_ns)
    }
}
