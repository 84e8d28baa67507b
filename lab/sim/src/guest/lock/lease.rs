// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lease lock (core/locks/lease.h) as in guests, where halts have no time limit. So the heir naps
//! and asks for the lock awake, and only the waiters behind it in line halt.
//!
//! An heir that asks gets the lock as soon as the lock is free and the heir is in its guest. A vCPU
//! that only watches the lock looks at it from time to time, and takes it if it is free at that
//! moment. The lock looks after each pause; here it is after [`LOOK_PAUSES`], which saves events.

use super::super::state::Guest;
use super::params::{lease_busy_uses, lease_ns, lease_watch_ns, lease_wish_ns};
use super::state::{Lock, Stage};
use crate::core::Core;
use crate::engine::{LockId, VcpuId};

/// Pauses between two looks.
const LOOK_PAUSES: u64 = 16;

/// What a vCPU that watched the lock or let the heir go first knows about it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Busy,
    Slow,
}

impl Lock {
    /// Counts each lock and unlock.
    fn uses(&self) -> u64 {
        2 * self.releases + u64::from(self.owner != VcpuId::NONE)
    }
}

impl Guest {
    fn stage(&self, v: VcpuId) -> Stage {
        self.cpus[v].wait.stage
    }

    /// `v` asks for the lock, which is held or wanted by the heir.
    pub(super) fn lease_begin(&mut self, core: &mut Core, v: VcpuId) {
        let index = self.cpus[v].wait.lock;
        let lock = &self.locks[index];
        match (lock.lease().wish, lock.owner) {
            (false, _) => self.lease_watch(core, v, index),
            (true, VcpuId::NONE) => {
                let until_ns = core.now_ns.saturating_add(self.lock_budget_ns(lease_wish_ns()));
                let wait = &mut self.cpus[v].wait;
                wait.stage = Stage::Courtesy;
                wait.until_ns = until_ns;
            }
            (true, _) => self.lease_draw(core, v, index, Seen::Busy),
        }
    }

    fn lease_watch(&mut self, core: &mut Core, v: VcpuId, index: LockId) {
        let ends_ns = core.now_ns.saturating_add(self.lock_budget_ns(lease_watch_ns()));
        let from = self.locks[index].uses();
        self.lease_watch_on(core, v, from, ends_ns);
    }

    fn lease_watch_on(&mut self, core: &mut Core, v: VcpuId, from: u64, ends_ns: u64) {
        let pauses_ns = core.clock.ns(LOOK_PAUSES * core.prices.pause_loop_cycles).max(1);
        let wait = &mut self.cpus[v].wait;
        wait.until_ns = core.now_ns + pauses_ns;
        wait.stage = Stage::Watch { from, ends_ns };
    }

    /// `v` draws a number. Either it becomes the heir, or it halts.
    fn lease_draw(&mut self, core: &mut Core, v: VcpuId, index: LockId, seen: Seen) {
        self.leave_queue(v, index);
        self.join_queue(v, index);
        let heir = self.locks[index].lease().heir;
        if heir == VcpuId::NONE {
            self.locks[index].lease_mut().heir = v;
            self.lease_inherit(core, v, index, seen);
            return;
        }
        self.cpus[v].wait.stage = Stage::InLine;
        self.halt_in_lock(core, v);
    }

    /// `v`, the heir, has found that it cannot have the lock now.
    fn lease_inherit(&mut self, core: &mut Core, v: VcpuId, index: LockId, seen: Seen) {
        match seen {
            Seen::Busy => {
                let until_ns = core.now_ns.saturating_add(self.lock_budget_ns(lease_ns()));
                let wait = &mut self.cpus[v].wait;
                wait.until_ns = until_ns;
                wait.stage = Stage::SitOut;
            }
            Seen::Slow => {
                self.cpus[v].wait.stage = Stage::Claim;
                self.locks[index].lease_mut().wish = true;
            }
        }
    }

    /// The time at which `v`, spinning, has to look.
    pub(super) fn lease_look_ns(&self, core: &Core, v: VcpuId) -> u64 {
        let vcpu = &self.cpus[v];
        let (wait, back) = (&vcpu.wait, core.vcpus[v].ledger.host_ns() > 0);
        let lock = &self.locks[wait.lock];
        match wait.stage {
            Stage::Watch { .. } | Stage::SitOut => wait.until_ns,
            Stage::Courtesy if back || lock.owner != VcpuId::NONE || !lock.lease().wish => 0,
            Stage::Courtesy => wait.until_ns,
            // It was kicked, so it is the heir.
            Stage::InLine => 0,
            Stage::Claim if back => 0,
            Stage::Claim => u64::MAX,
        }
    }

    /// Whether `v` has the lock.
    pub(super) fn lease_look(&mut self, core: &mut Core, v: VcpuId, index: LockId) -> bool {
        let due = core.now_ns >= self.cpus[v].wait.until_ns;
        match self.stage(v) {
            Stage::Watch { from, ends_ns } if due => {
                self.lease_look_watching(core, v, index, from, ends_ns)
            }
            Stage::SitOut if due => {
                self.cpus[v].wait.stage = Stage::Claim;
                self.lease_claim(core, v, index)
            }
            Stage::Watch { .. } | Stage::SitOut => false,
            Stage::Courtesy => {
                let lock = &self.locks[index];
                if lock.owner != VcpuId::NONE || !lock.lease().wish {
                    self.lease_draw(core, v, index, Seen::Busy);
                    return false;
                }
                if due {
                    self.lease_take(core, v, index);
                }
                due
            }
            Stage::InLine => {
                self.lease_watch(core, v, index);
                false
            }
            Stage::Claim => self.lease_claim(core, v, index),
        }
    }

    fn lease_look_watching(
        &mut self,
        core: &mut Core,
        v: VcpuId,
        index: LockId,
        from: u64,
        ends_ns: u64,
    ) -> bool {
        let lock = &self.locks[index];
        let used = (lock.uses() - from) / 2;
        let busy = used >= u64::from(lease_busy_uses()) || lock.lease().wish;
        if !busy && lock.owner == VcpuId::NONE {
            self.lease_take(core, v, index);
            return true;
        }
        if !busy && core.now_ns < ends_ns {
            self.lease_watch_on(core, v, from, ends_ns);
            return false;
        }
        let seen = if busy { Seen::Busy } else { Seen::Slow };
        if self.locks[index].lease().heir == v {
            self.lease_inherit(core, v, index, seen);
        } else {
            self.lease_draw(core, v, index, seen);
        }
        false
    }

    /// The heir asks for the lock, or asks again, because others end a wish that seems abandoned.
    fn lease_claim(&mut self, core: &mut Core, v: VcpuId, index: LockId) -> bool {
        if self.locks[index].owner == VcpuId::NONE {
            self.lease_take(core, v, index);
            return true;
        }
        self.locks[index].lease_mut().wish = true;
        false
    }

    /// The asking heir is the only spinner. It gets the lock at once, or all wait for it.
    pub(super) fn lease_release(&mut self, core: &mut Core, index: LockId) {
        let lock = &mut self.locks[index];
        lock.releases += 1;
        let heir = lock.lease().heir;
        if heir == VcpuId::NONE || self.stage(heir) != Stage::Claim {
            return;
        }
        self.account(core, heir);
        if self.is_in_guest(core, heir) {
            self.lease_take(core, heir, index);
        } else if self.locks[index].lease().wish {
            self.set_absent_next(core, heir, index);
        }
    }

    /// `v` takes the free lock. If it is the heir, it lets in the next in line.
    fn lease_take(&mut self, core: &mut Core, v: VcpuId, index: LockId) {
        self.hand_over(core, v, index);
        // A wish was fulfilled or has lapsed: vCPUs that let the heir go first check the lock now.
        if std::mem::take(&mut self.locks[index].lease_mut().wish) {
            self.lease_tell_the_courteous(core, index);
        }
        if self.locks[index].lease().heir != v {
            return;
        }
        let next = self.first_halted(index);
        self.locks[index].lease_mut().heir = next;
        if next != VcpuId::NONE {
            self.kick(core, v, next);
            self.touch(core, v);
        }
    }

    fn lease_tell_the_courteous(&mut self, core: &mut Core, index: LockId) {
        let mut v = self.locks[index].head;
        while v != VcpuId::NONE {
            if self.stage(v) == Stage::Courtesy && self.is_in_guest(core, v) {
                self.account(core, v);
                self.touch(core, v);
            }
            v = self.cpus[v].wait.behind;
        }
    }

    /// The first in line behind the heir, in the order of their numbers.
    fn first_halted(&self, index: LockId) -> VcpuId {
        let mut v = self.locks[index].head;
        while v != VcpuId::NONE && self.stage(v) != Stage::InLine {
            v = self.cpus[v].wait.behind;
        }
        v
    }
}
