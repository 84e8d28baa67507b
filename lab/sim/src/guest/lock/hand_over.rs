// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hand-over of a lock and its cost: its owner, the next owner, and the queue of waiters.
//!
//! A spinning waiter has an event only if its protocol makes it check, give up or halt. So a
//! hand-over causes O(1) events. Only releases that find the next waiter without a pCPU walk the
//! queue.

use super::super::state::{Cpu, Doing, Guest};
use super::protocol::Protocol;
use super::state::BUCKETS;
use crate::core::{Core, State};
use crate::engine::{LockId, VcpuId};

impl Guest {
    /// The number of a lock within its VM.
    #[inline]
    pub fn lock_number(&self, index: LockId) -> u32 {
        // The number of locks is always a power of two, so that no hand-over needs a division.
        index.0 & (self.locks_per_vm - 1)
    }

    #[inline]
    pub fn lock_index(&self, core: &Core, v: VcpuId, number: u32) -> LockId {
        LockId(core.vcpus[v].vm.0 * self.locks_per_vm + number)
    }

    #[inline]
    pub(super) fn try_free(&mut self, core: &mut Core, v: VcpuId, index: LockId) -> bool {
        if self.locks[index].owner != VcpuId::NONE {
            return false;
        }
        self.hand_over(core, v, index);
        true
    }

    #[inline]
    pub(super) fn is_in_guest(&self, core: &Core, v: VcpuId) -> bool {
        let vcpu = &core.vcpus[v];
        vcpu.on.state == State::Running
            && vcpu.ledger.host_ns() == 0
            && self.cpus[v].run.doing == Doing::SpinLock
    }

    /// Any waiter that spins in its guest right now and for which `may` is true, or
    /// [`VcpuId::NONE`]. Accounts for every waiter.
    pub(super) fn draw_spinner(
        &mut self,
        core: &mut Core,
        index: LockId,
        may: fn(&Cpu) -> bool,
    ) -> VcpuId {
        let head = self.locks[index].head;
        let mut spinning = 0;
        let mut v = head;
        while v != VcpuId::NONE {
            self.account(core, v);
            spinning += u32::from(self.is_in_guest(core, v) && may(&self.cpus[v]));
            v = self.cpus[v].wait.behind;
        }
        if spinning == 0 {
            return VcpuId::NONE;
        }
        let mut left = self.tas_rng.uniform(0, spinning - 1);
        let mut v = head;
        loop {
            if self.is_in_guest(core, v) && may(&self.cpus[v]) {
                if left == 0 {
                    return v;
                }
                left -= 1;
            }
            v = self.cpus[v].wait.behind;
        }
    }

    #[inline]
    pub(super) fn own_at_once(&mut self, core: &mut Core, v: VcpuId, index: LockId) {
        self.own(core, v, index);
        let vm = core.vcpus[v].vm;
        self.vms[vm].wait_hist[self.lock_bucket] += 1;
    }

    #[inline]
    pub(super) fn own(&mut self, core: &mut Core, v: VcpuId, index: LockId) {
        let number = self.lock_number(index);
        let now = core.now_ns;
        self.clear_absent_next(core, index);
        let vcpu = &mut self.cpus[v];
        vcpu.owned |= 1 << number;
        vcpu.acquisitions += 1;
        let runs = core.vcpus[v].on.state == State::Running;
        let lock = &mut self.locks[index];
        debug_assert_eq!(lock.owner, VcpuId::NONE);
        lock.owner = v;
        lock.off.set(!runs, now);
    }

    /// The lock is free, and all wait for `v`, which has no pCPU or is being handled by its host.
    pub(super) fn set_absent_next(&mut self, core: &mut Core, v: VcpuId, index: LockId) {
        let number = self.lock_number(index);
        self.clear_absent_next(core, index);
        let vcpu = &mut self.cpus[v];
        vcpu.owned |= 1 << number;
        let runs = core.vcpus[v].on.state == State::Running;
        let lock = &mut self.locks[index];
        lock.absent_next = v;
        lock.off.set(!runs, core.now_ns);
    }

    #[inline]
    pub(super) fn clear_absent_next(&mut self, core: &mut Core, index: LockId) {
        let number = self.lock_number(index);
        let lock = &mut self.locks[index];
        if lock.absent_next != VcpuId::NONE {
            let was = std::mem::replace(&mut lock.absent_next, VcpuId::NONE);
            self.cpus[was].owned &= !(1 << number);
            lock.off.set(false, core.now_ns);
        }
    }

    /// The free lock goes to `v`, which waits for it. `v` advances at once, even without a pCPU;
    /// its next action begins when it runs.
    pub(super) fn hand_over(&mut self, core: &mut Core, v: VcpuId, index: LockId) {
        self.account(core, v);
        self.leave_queue(v, index);
        let lock = &self.locks[index];
        let (waiters, shared_word) = (lock.waiters, lock.shared_word());
        self.own(core, v, index);
        let more =
            if shared_word { u64::from(waiters) * core.prices.handoff_per_waiter_ns } else { 0 };
        let handoff_ns = core.prices.handoff_ns + more;
        let vcpu = &mut self.cpus[v];
        vcpu.wait.lock = LockId::NONE;
        vcpu.wait.handoff_ns = handoff_ns;
        vcpu.notice_lock = true;
        let state = core.vcpus[v].on.state;
        if state == State::Running {
            self.notice_lock(core, v);
        }
        self.go_on_working(core, v, handoff_ns + core.prices.lock_ns);
        if state == State::Halted {
            self.wake(core, v);
        } else {
            self.touch(core, v);
        }
    }

    #[inline]
    pub(super) fn join_queue(&mut self, v: VcpuId, index: LockId) {
        let lock = &mut self.locks[index];
        let last = std::mem::replace(&mut lock.tail, v);
        lock.waiters += 1;
        if last == VcpuId::NONE {
            lock.head = v;
        } else {
            self.cpus[last].wait.behind = v;
        }
    }

    #[inline]
    pub(super) fn leave_queue(&mut self, v: VcpuId, index: LockId) {
        let wait = &mut self.cpus[v].wait;
        let behind = std::mem::replace(&mut wait.behind, VcpuId::NONE);
        let competed = std::mem::take(&mut wait.competing);
        let lock = &mut self.locks[index];
        lock.waiters -= 1;
        if let (true, Protocol::Preemptable(kept)) = (competed, &mut lock.protocol) {
            kept.competing -= 1;
        }
        if lock.head == v {
            lock.head = behind;
            if behind == VcpuId::NONE {
                lock.tail = VcpuId::NONE;
            }
            return;
        }
        let mut before = lock.head;
        while self.cpus[before].wait.behind != v {
            before = self.cpus[before].wait.behind;
        }
        self.cpus[before].wait.behind = behind;
        if behind == VcpuId::NONE {
            self.locks[index].tail = before;
        }
    }

    #[inline]
    pub(super) fn set_competing(&mut self, v: VcpuId) {
        let wait = &mut self.cpus[v].wait;
        debug_assert!(!wait.competing);
        wait.competing = true;
    }

    /// `v` runs, and notices that it has its lock as soon as its guest continues.
    pub fn notice_lock(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &mut self.cpus[v];
        vcpu.notice_lock = false;
        vcpu.wait.noticed_ns = core.now_ns + core.vcpus[v].ledger.host_ns();
        vcpu.wait.owns_from_ns = vcpu.wait.noticed_ns + vcpu.wait.handoff_ns;
        let wait_ns = vcpu.wait.noticed_ns - vcpu.wait.began_ns;
        let cycles = core.cycles_fast(wait_ns);
        let bucket = (63 - (cycles | 1).leading_zeros() as usize).min(BUCKETS - 1);
        let vm = &mut self.vms[core.vcpus[v].vm];
        vm.wait_hist[bucket] += 1;
        vm.max_wait_cycles = vm.max_wait_cycles.max(cycles);
        self.watch_wait(core, v, cycles);
    }
}
