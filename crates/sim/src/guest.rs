// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest: runs the steps `guest/main.c` runs, in the same order, with the same random numbers.
//!
//! Work between two steps that others can notice is one interval. Spinning is an interval too: it
//! ends when the lock is handed over, the barrier opens, or the window is over. A waiter whose turn
//! comes is moved on at once, whatever its pCPU does: what it does next it does when it runs.

use crate::machine::{Sim, BUCKETS};
use crate::sched::NONE;
use crate::state::{Doing, Lock, State};
use unspin_scenario::plan::LockKind;
use unspin_vmm::abi;

/// Locks a VM has.
pub(crate) const LOCKS: u32 = abi::LOCKS_MAX as u32;

impl Sim {
    fn draw(&mut self, v: u32, step: &abi::Step) -> u32 {
        let rng = &mut self.vcpus[v as usize].rng;
        match step.dist {
            abi::DIST_UNIFORM => rng.uniform(step.a, step.b),
            abi::DIST_EXP => rng.exp(step.a, step.b),
            _ => step.a,
        }
    }

    /// Runs the program of `v` on from its `pc`, after `ns` of work that is due already, up to the
    /// next thing that takes time and that others may notice.
    pub(crate) fn advance(&mut self, v: u32, mut ns: u64) {
        let vm = &self.vms[self.vcpus[v as usize].vm as usize];
        let (begin, end) = (vm.program, vm.program_end);
        let mut pc = self.vcpus[v as usize].pc;
        loop {
            if pc == end {
                // A unit counts when its work is done; what releasing its last lock takes is no
                // reason for an event of its own.
                if ns > self.unlock_ns {
                    break;
                }
                self.vcpus[v as usize].units += 1;
                pc = begin;
                // Also a program of no length takes time.
                ns += self.unit_ns;
            }
            let step = self.steps[pc as usize];
            if !self.vcpus[v as usize].taken {
                if step.permille < 1000 && !self.vcpus[v as usize].rng.chance(step.permille) {
                    pc = begin + step.skip;
                    continue;
                }
                ns += self.step_ns;
            }
            let is_work = matches!(step.op, abi::OP_COMPUTE | abi::OP_CRITICAL);
            if !is_work && ns > 0 {
                self.vcpus[v as usize].taken = true;
                break;
            }
            self.vcpus[v as usize].taken = false;
            pc += 1;
            match step.op {
                abi::OP_COMPUTE | abi::OP_CRITICAL => {
                    let iterations = u64::from(self.draw(v, &step));
                    ns += self.clock.ns(iterations * self.iteration_cycles);
                }
                abi::OP_LOCK => {
                    if !self.lock(v, step.lock) {
                        self.vcpus[v as usize].pc = pc;
                        return;
                    }
                    ns += self.lock_ns;
                }
                abi::OP_UNLOCK => {
                    self.unlock(v, step.lock);
                    ns += self.unlock_ns;
                }
                abi::OP_WAKE => self.wake_next(v),
                abi::OP_BLOCK => {
                    let timer_ns = self.draw(v, &step);
                    self.vcpus[v as usize].pc = pc;
                    self.block(v, u64::from(timer_ns), step.b != 0);
                    return;
                }
                _ => {
                    let pauses = match step.op {
                        abi::OP_BARRIER => Some(self.draw(v, &step)),
                        _ => None,
                    };
                    self.vcpus[v as usize].pc = pc;
                    if !self.barrier(v, pauses) {
                        return;
                    }
                }
            }
        }
        let vcpu = &mut self.vcpus[v as usize];
        vcpu.pc = pc;
        vcpu.doing = Doing::Work;
        vcpu.remaining_ns = ns;
    }

    fn lock_index(&self, v: u32, number: u32) -> u32 {
        self.vcpus[v as usize].vm * LOCKS + number
    }

    /// Whether `v`, running, has the lock at once; else it spins.
    fn lock(&mut self, v: u32, number: u32) -> bool {
        let index = self.lock_index(v, number);
        let now = self.now_ns;
        if self.locks[index as usize].owner == NONE {
            self.own(v, index);
            let vm = self.vcpus[v as usize].vm as usize;
            self.vms[vm].wait_hist[self.lock_bucket] += 1;
            return true;
        }
        let lock = &mut self.locks[index as usize];
        let last = std::mem::replace(&mut lock.tail, v);
        lock.waiters += 1;
        if last == NONE {
            lock.head = v;
        }
        let off_mark_ns = lock.off.at(now);
        if last != NONE {
            self.vcpus[last as usize].behind = v;
        }
        let vcpu = &mut self.vcpus[v as usize];
        vcpu.behind = NONE;
        vcpu.lock = index;
        vcpu.wait_since_ns = now;
        vcpu.off_mark_ns = off_mark_ns;
        vcpu.doing = Doing::SpinLock;
        vcpu.spun_ns = 0;
        false
    }

    fn own(&mut self, v: u32, index: u32) {
        let now = self.now_ns;
        let vcpu = &mut self.vcpus[v as usize];
        vcpu.owned |= 1 << (index % LOCKS);
        vcpu.acquisitions += 1;
        let runs = vcpu.state == State::Running;
        let lock = &mut self.locks[index as usize];
        debug_assert_eq!(lock.owner, NONE);
        lock.owner = v;
        lock.off.set(!runs, now);
    }

    fn unlock(&mut self, v: u32, number: u32) {
        let index = self.lock_index(v, number);
        let vcpu = &mut self.vcpus[v as usize];
        assert!(vcpu.owned & 1 << number != 0, "vCPU {v} releases a lock it does not hold");
        vcpu.owned &= !(1 << number);
        let lock = &mut self.locks[index as usize];
        lock.owner = NONE;
        lock.off.set(false, self.now_ns);
        let next = match self.lock_kind {
            LockKind::Ticket | LockKind::Mcs => lock.head,
            LockKind::Tas => self.tas_winner(index),
        };
        if next != NONE {
            self.hand_over(next, index);
        }
    }

    /// Any of those whose guests spin right now; [`NONE`]: the lock stays free.
    fn tas_winner(&mut self, index: u32) -> u32 {
        let Lock { head, .. } = self.locks[index as usize];
        let mut spinning = 0;
        let mut v = head;
        while v != NONE {
            self.account(v);
            spinning += u32::from(self.is_in_guest(v));
            v = self.vcpus[v as usize].behind;
        }
        if spinning == 0 {
            return NONE;
        }
        let mut left = self.tas_rng.uniform(0, spinning - 1);
        let mut v = head;
        loop {
            if self.is_in_guest(v) {
                if left == 0 {
                    return v;
                }
                left -= 1;
            }
            v = self.vcpus[v as usize].behind;
        }
    }

    fn is_in_guest(&self, v: u32) -> bool {
        let vcpu = &self.vcpus[v as usize];
        vcpu.state == State::Running && vcpu.host_ns() == 0
    }

    /// A spinner of a test-and-set lock looks again: whether it has it now.
    pub(crate) fn try_free_lock(&mut self, v: u32) -> bool {
        let index = self.vcpus[v as usize].lock;
        if self.lock_kind != LockKind::Tas || self.locks[index as usize].owner != NONE {
            return false;
        }
        self.hand_over(v, index);
        true
    }

    /// The lock is free and goes to `v`, who waits for it.
    fn hand_over(&mut self, v: u32, index: u32) {
        self.account(v);
        self.leave_queue(v, index);
        let waiters = self.locks[index as usize].waiters;
        self.own(v, index);
        let shared_word = self.lock_kind != LockKind::Mcs;
        let more = if shared_word { u64::from(waiters) * self.handoff_per_waiter_ns } else { 0 };
        let vcpu = &mut self.vcpus[v as usize];
        vcpu.lock = NONE;
        vcpu.notice_lock = true;
        if vcpu.state == State::Running {
            self.notice_lock(v);
        }
        self.advance(v, self.handoff_ns + more + self.lock_ns);
        self.rearm(v);
    }

    fn leave_queue(&mut self, v: u32, index: u32) {
        let behind = std::mem::replace(&mut self.vcpus[v as usize].behind, NONE);
        let lock = &mut self.locks[index as usize];
        lock.waiters -= 1;
        if lock.head == v {
            lock.head = behind;
            if behind == NONE {
                lock.tail = NONE;
            }
            return;
        }
        let mut before = lock.head;
        while self.vcpus[before as usize].behind != v {
            before = self.vcpus[before as usize].behind;
        }
        self.vcpus[before as usize].behind = behind;
        if behind == NONE {
            lock.tail = before;
        }
    }

    /// `v` runs, and finds that it has its lock as soon as the host lets its guest go on.
    pub(crate) fn notice_lock(&mut self, v: u32) {
        let vcpu = &mut self.vcpus[v as usize];
        vcpu.notice_lock = false;
        let wait_ns = self.now_ns + vcpu.host_ns() - vcpu.wait_since_ns;
        let cycles = self.cycles_fast(wait_ns);
        let bucket = (63 - (cycles | 1).leading_zeros() as usize).min(BUCKETS - 1);
        let vm = &mut self.vms[self.vcpus[v as usize].vm as usize];
        vm.wait_hist[bucket] += 1;
        vm.max_wait_cycles = vm.max_wait_cycles.max(cycles);
    }

    /// `v`, running, has arrived. Whether it goes on at once.
    fn barrier(&mut self, v: u32, pauses: Option<u32>) -> bool {
        let vm = self.vcpus[v as usize].vm as usize;
        let now = self.now_ns;
        self.vms[vm].barrier.arrived += 1;
        if self.vms[vm].barrier.arrived == self.vms[vm].vcpus {
            self.open_barrier(v);
            return true;
        }
        let off_mark_ns = self.vms[vm].barrier.off.at(now);
        let vcpu = &mut self.vcpus[v as usize];
        vcpu.arrived = true;
        vcpu.off_mark_ns = off_mark_ns;
        vcpu.spun_ns = 0;
        vcpu.doing = Doing::SpinBarrier;
        vcpu.remaining_ns = match pauses {
            None => u64::MAX,
            Some(n) => self.clock.ns(u64::from(n) * self.pause_loop_cycles),
        };
        if vcpu.remaining_ns == 0 {
            self.halt_at_barrier(v);
        }
        false
    }

    /// It has spun long enough.
    pub(crate) fn halt_at_barrier(&mut self, v: u32) {
        let vm = self.vcpus[v as usize].vm as usize;
        self.vms[vm].barrier.sleepers += 1;
        let vcpu = &mut self.vcpus[v as usize];
        vcpu.doing = Doing::HaltBarrier;
        vcpu.remaining_ns = 0;
        vcpu.exit_ns += self.halt_ns;
    }

    /// `opener` was the last to arrive: everybody goes on.
    fn open_barrier(&mut self, opener: u32) {
        let vm = self.vcpus[opener as usize].vm as usize;
        let now = self.now_ns;
        let (first, count) = (self.vms[vm].first, self.vms[vm].vcpus);
        let interrupts = self.vms[vm].barrier.sleepers > 0;
        for v in first..first + count {
            if v != opener {
                self.account(v);
            }
        }
        let off = (first..first + count)
            .filter(|&v| self.vcpus[v as usize].state != State::Running)
            .count() as u32;
        let barrier = &mut self.vms[vm].barrier;
        barrier.arrived = 0;
        barrier.sleepers = 0;
        barrier.missing_off = off;
        barrier.off.set(off > 0, now);
        if interrupts {
            self.vcpus[opener as usize].exit_ns += self.ipi_ns;
        }
        for v in (first..first + count).filter(|&v| v != opener) {
            self.vcpus[v as usize].arrived = false;
            if self.vcpus[v as usize].state == State::Running && interrupts {
                self.interrupt(v);
            }
            let asleep = self.vcpus[v as usize].state == State::Halted;
            self.advance(v, self.handoff_ns.max(self.unit_ns));
            if asleep {
                self.wake(v);
            } else {
                self.rearm(v);
            }
        }
    }

    /// HLT until woken, or until the timer fires.
    fn block(&mut self, v: u32, timer_ns: u64, has_timer: bool) {
        let vcpu = &mut self.vcpus[v as usize];
        vcpu.blocked = true;
        vcpu.doing = Doing::HaltBlock;
        vcpu.remaining_ns = 0;
        vcpu.exit_ns += self.timer_ns + self.halt_ns;
        if has_timer {
            let at = self.now_ns + self.timer_ns + timer_ns.max(1);
            self.queue.arm(self.block_timer(v), at);
        }
    }

    /// The block of `v` is over, by its timer or by a sibling.
    pub(crate) fn end_block(&mut self, v: u32) {
        self.account(v);
        let vcpu = &mut self.vcpus[v as usize];
        vcpu.blocked = false;
        vcpu.doing = Doing::Work;
        vcpu.remaining_ns = self.unit_ns;
        if vcpu.state == State::Halted {
            self.wake(v);
        } else {
            self.rearm(v);
        }
    }

    fn wake_next(&mut self, v: u32) {
        let vcpu = &self.vcpus[v as usize];
        let vm = &self.vms[vcpu.vm as usize];
        let next = vm.first + (vcpu.index + 1) % vm.vcpus;
        if next == v || !self.vcpus[next as usize].blocked {
            return;
        }
        self.vcpus[v as usize].exit_ns += self.ipi_ns;
        self.queue.cancel(self.block_timer(next));
        self.end_block(next);
    }
}
