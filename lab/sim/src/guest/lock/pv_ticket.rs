// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ticket locks whose waiters halt (core/locks/pv_ticket.h, oticket.h): they
//! differ in how long a waiter spins and in how many a release kicks.

use super::super::state::Guest;
use super::params::oticket_spin_ns;
use super::protocol::{Protocol, Spin};
use crate::core::Core;
use crate::engine::{LockId, VcpuId};

impl Guest {
    fn pv_ticket_spin_ns(&self, v: VcpuId) -> u64 {
        let wait = &self.cpus[v].wait;
        let lock = &self.locks[wait.lock];
        let Protocol::PvTicket { spin, .. } = lock.protocol else { unreachable!() };
        let ns = match spin {
            Spin::Fixed { ns } => ns,
            Spin::Distance => oticket_spin_ns(wait.ahead),
            Spin::Doubling { ns, doublings, .. } => ns << doublings,
        };
        self.lock_budget_ns(ns)
    }

    /// `v` begins to spin.
    pub(super) fn pv_ticket_spin(&mut self, core: &mut Core, v: VcpuId) {
        let ns = self.pv_ticket_spin_ns(v);
        self.cpus[v].wait.until_ns = core.now_ns.saturating_add(ns);
    }

    pub(super) fn pv_ticket_look(&mut self, core: &mut Core, v: VcpuId) {
        let (now, ns) = (core.now_ns, self.pv_ticket_spin_ns(v));
        let wait = &mut self.cpus[v].wait;
        if !wait.budget_spent(now, ns) {
            return;
        }
        let lock = &mut self.locks[wait.lock];
        if let Protocol::PvTicket {
            spin: Spin::Doubling { doublings, doublings_max, .. }, ..
        } = &mut lock.protocol
        {
            *doublings = (*doublings + 1).min(*doublings_max);
        }
        self.halt_in_lock(core, v);
    }

    pub(super) fn pv_ticket_release(
        &mut self,
        core: &mut Core,
        by: VcpuId,
        index: LockId,
        kicks: u32,
    ) {
        let lock = &mut self.locks[index];
        lock.releases += 1;
        let next = lock.head;
        if self.halts(next) {
            self.charge_kick(core, by);
        }
        self.hand_over(core, next, index);
        let mut early = self.locks[index].head;
        for _ in 1..kicks {
            if early == VcpuId::NONE {
                break;
            }
            if self.halts(early) {
                self.kick(core, by, early);
            }
            early = self.cpus[early].wait.behind;
        }
    }
}
