// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lease lock (locks/lease.h) as guests have it: halts have no time limit there, so the heir naps
//! and asks for the lock awake, and only those behind it in line halt.
//!
//! The heir that asks has the lock as soon as it is free and the heir in its guest. Who only watches
//! looks now and then, and takes what it finds free at that moment.

use super::params::{
    lease_busy_ns, lease_busy_uses, lease_nap_ns, lease_ns, lease_watch_ns, lease_wish_ns,
};
use super::{Lock, Sim};
use crate::engine::{LockId, VcpuId};
use crate::sched::NONE;

/// Pauses between two looks: first, first where others are in line, and at most (lease_watch()).
const TURNS: u64 = 4;
const TURNS_WITH_LINE: u64 = 32;
const TURNS_MAX: u64 = 64;

/// What a waiter does. `from`: the lock's count of uses when it began; `ends_ns`: until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Looks at the lock now and then; `turns` pauses before the next look (lease_watch()).
    Watch { from: u64, ends_ns: u64, turns: u8 },
    /// Lets the heir go first, until its wish lapses (lease_wish_lapsed()).
    Courtesy,
    /// Halts until it is the heir; kicked, it is.
    InLine,
    /// The heir: leaves a busy lock to the others, looking between naps (lease_sit_out()).
    SitOut { from: u64, ends_ns: u64 },
    /// The heir: wants the lock (lease_claim()).
    Claim,
}

/// What one who watched the lock, or was courteous, knows of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Busy,
    Slow,
}

impl Lock {
    /// One up at each lock and unlock.
    fn uses(&self) -> u64 {
        2 * self.granted + u64::from(self.owner != NONE)
    }
}

impl Sim {
    fn stage(&self, v: VcpuId) -> Stage {
        self.vcpus[v].wait.stage
    }

    /// `v` comes, and the lock is held or wished for.
    pub(super) fn lease_begin(&mut self, v: VcpuId) {
        let index = self.vcpus[v].wait.lock;
        let lock = &self.locks[index];
        match (lock.wish, lock.owner) {
            (false, _) => self.lease_watch(v, index),
            (true, NONE) => {
                let until_ns = self.now_ns.saturating_add(self.lock_budget_ns(lease_wish_ns()));
                let wait = &mut self.vcpus[v].wait;
                wait.stage = Stage::Courtesy;
                wait.until_ns = until_ns;
            }
            (true, _) => self.lease_draw(v, index, Seen::Busy),
        }
    }

    fn lease_watch(&mut self, v: VcpuId, index: LockId) {
        let ends_ns = self.now_ns.saturating_add(self.lock_budget_ns(lease_watch_ns()));
        let lock = &self.locks[index];
        let turns = if lock.line_heir == NONE { TURNS } else { TURNS_WITH_LINE };
        let from = lock.uses();
        self.lease_watch_on(v, from, ends_ns, turns);
    }

    fn lease_watch_on(&mut self, v: VcpuId, from: u64, ends_ns: u64, turns: u64) {
        let pauses_ns = self.clock.ns(turns * self.pause_loop_cycles).max(1);
        let wait = &mut self.vcpus[v].wait;
        wait.until_ns = self.now_ns + pauses_ns;
        let turns = (2 * turns).min(TURNS_MAX) as u8;
        wait.stage = Stage::Watch { from, ends_ns, turns };
    }

    /// `v` draws a number: it is the heir, or halts. The line has changed, which ends the heir's nap.
    fn lease_draw(&mut self, v: VcpuId, index: LockId, seen: Seen) {
        self.leave_queue(v, index);
        self.join_queue(v, index);
        let heir = self.locks[index].line_heir;
        if heir == NONE {
            self.locks[index].line_heir = v;
            self.lease_inherit(v, index, seen);
            return;
        }
        self.vcpus[v].wait.stage = Stage::InLine;
        self.halt_in_lock(v);
        if let Stage::SitOut { .. } = self.stage(heir) {
            self.account(heir);
            self.vcpus[heir].wait.until_ns = self.now_ns;
            self.rearm(heir);
        }
    }

    /// `v`, the heir, has seen that it cannot have the lock now.
    fn lease_inherit(&mut self, v: VcpuId, index: LockId, seen: Seen) {
        match seen {
            Seen::Busy => {
                let ends_ns = self.now_ns.saturating_add(self.lock_budget_ns(lease_ns()));
                self.lease_nap(v, index, ends_ns);
            }
            Seen::Slow => {
                self.vcpus[v].wait.stage = Stage::Claim;
                self.locks[index].wish = true;
            }
        }
    }

    fn lease_nap(&mut self, v: VcpuId, index: LockId, ends_ns: u64) {
        let nap_ns = self.lock_budget_ns(lease_nap_ns());
        let from = self.locks[index].uses();
        let wait = &mut self.vcpus[v].wait;
        wait.since_ns = self.now_ns;
        wait.until_ns = self.now_ns.saturating_add(nap_ns);
        wait.stage = Stage::SitOut { from, ends_ns };
    }

    /// When `v`, spinning, has to look.
    pub(super) fn lease_look_ns(&self, v: VcpuId) -> u64 {
        let vcpu = &self.vcpus[v];
        let (wait, back) = (&vcpu.wait, vcpu.host_ns() > 0);
        let lock = &self.locks[wait.lock];
        match wait.stage {
            Stage::Watch { .. } | Stage::SitOut { .. } => wait.until_ns,
            Stage::Courtesy if back || lock.owner != NONE || !lock.wish => 0,
            Stage::Courtesy => wait.until_ns,
            // Kicked: it is the heir.
            Stage::InLine => 0,
            Stage::Claim if back => 0,
            Stage::Claim => u64::MAX,
        }
    }

    /// Whether `v` has the lock.
    pub(super) fn lease_look(&mut self, v: VcpuId, index: LockId) -> bool {
        let due = self.now_ns >= self.vcpus[v].wait.until_ns;
        match self.stage(v) {
            Stage::Watch { from, ends_ns, turns } if due => {
                self.lease_look_watching(v, index, from, ends_ns, turns)
            }
            Stage::SitOut { from, ends_ns } if due => {
                self.lease_look_sitting_out(v, index, from, ends_ns)
            }
            Stage::Watch { .. } | Stage::SitOut { .. } => false,
            Stage::Courtesy => {
                let lock = &self.locks[index];
                if lock.owner != NONE || !lock.wish {
                    self.lease_draw(v, index, Seen::Busy);
                    return false;
                }
                if due {
                    self.lease_take(v, index);
                }
                due
            }
            Stage::InLine => {
                self.lease_watch(v, index);
                false
            }
            Stage::Claim => self.lease_claim(v, index),
        }
    }

    fn lease_look_watching(
        &mut self,
        v: VcpuId,
        index: LockId,
        from: u64,
        ends_ns: u64,
        turns: u8,
    ) -> bool {
        let lock = &self.locks[index];
        let used = (lock.uses() - from) / 2;
        let busy = used >= u64::from(lease_busy_uses()) || lock.wish;
        if !busy && lock.owner == NONE {
            self.lease_take(v, index);
            return true;
        }
        if !busy && self.now_ns < ends_ns {
            self.lease_watch_on(v, from, ends_ns, u64::from(turns));
            return false;
        }
        let seen = if busy { Seen::Busy } else { Seen::Slow };
        if self.locks[index].line_heir == v {
            self.lease_inherit(v, index, seen);
        } else {
            self.lease_draw(v, index, seen);
        }
        false
    }

    fn lease_look_sitting_out(
        &mut self,
        v: VcpuId,
        index: LockId,
        from: u64,
        ends_ns: u64,
    ) -> bool {
        let lock = &self.locks[index];
        let used = (lock.uses() - from) / 2;
        let busy_ns = self.lock_budget_ns(lease_busy_ns()) * used;
        let busy = self.now_ns - self.vcpus[v].wait.since_ns < busy_ns;
        if busy && self.now_ns < ends_ns {
            self.lease_nap(v, index, ends_ns);
            return false;
        }
        self.vcpus[v].wait.stage = Stage::Claim;
        self.lease_claim(v, index)
    }

    /// The heir asks for the lock, or asks again: others end a wish that seems abandoned.
    fn lease_claim(&mut self, v: VcpuId, index: LockId) -> bool {
        if self.locks[index].owner == NONE {
            self.lease_take(v, index);
            return true;
        }
        self.locks[index].wish = true;
        false
    }

    /// Only the heir that asks for it spins for it: it has it at once, or all wait for it.
    pub(super) fn lease_release(&mut self, index: LockId) {
        let lock = &mut self.locks[index];
        lock.granted += 1;
        let heir = lock.line_heir;
        if heir == NONE || self.stage(heir) != Stage::Claim {
            return;
        }
        self.account(heir);
        if self.is_in_guest(heir) {
            self.lease_take(heir, index);
        } else if self.locks[index].wish {
            self.set_heir(heir, index);
        }
    }

    /// `v` takes the lock, which is free: it lets in the next in line if it is the heir itself.
    fn lease_take(&mut self, v: VcpuId, index: LockId) {
        self.hand_over(v, index);
        // A wish is fulfilled, or has lapsed: who was courteous looks now.
        if std::mem::take(&mut self.locks[index].wish) {
            self.lease_tell_the_courteous(index);
        }
        if self.locks[index].line_heir != v {
            return;
        }
        let next = self.first_halted(index);
        self.locks[index].line_heir = next;
        if next != NONE {
            self.kick(v, next);
            self.rearm(v);
        }
    }

    fn lease_tell_the_courteous(&mut self, index: LockId) {
        let mut v = self.locks[index].head;
        while v != NONE {
            if self.stage(v) == Stage::Courtesy && self.is_in_guest(v) {
                self.account(v);
                self.rearm(v);
            }
            v = self.vcpus[v].wait.behind;
        }
    }

    /// First of those in line behind the heir, in the order they drew their numbers.
    fn first_halted(&self, index: LockId) -> VcpuId {
        let mut v = self.locks[index].head;
        while v != NONE && self.stage(v) != Stage::InLine {
            v = self.vcpus[v].wait.behind;
        }
        v
    }
}
