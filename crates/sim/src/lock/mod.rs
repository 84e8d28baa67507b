// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's locks as waiting protocols: who waits, who is next, and what a waiter does meanwhile.
//!
//! Here is what all of them share: the queue of waiters, who owns a lock, how it changes hands and
//! what that costs. A file a family says who is next. Nothing happens while nobody does anything
//! that others can notice: a waiter that spins has an event only where its protocol makes it look
//! or stop, and a hand-over is O(1) events.

mod fifo;
mod tas;

use crate::machine::{Sim, BUCKETS};
use crate::sched::NONE;
use crate::state::{Doing, OffClock, State};
use unspin_scenario::plan::LockKind;
use unspin_vmm::abi;

/// Whether the model has that lock.
pub fn models(lock: LockKind) -> bool {
    Protocol::of(lock).is_some()
}

/// Locks a VM has.
pub(crate) const LOCKS: u32 = abi::LOCKS_MAX as u32;

/// How those that find a lock taken wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// In the order they came, spinning (`ticket`, `mcs`). `shared_word`: all on one word.
    Fifo { shared_word: bool },
    /// Whoever spins when it is released may have it.
    Tas,
}

impl Protocol {
    /// `None`: the model has no such lock.
    pub fn of(kind: LockKind) -> Option<Protocol> {
        match kind {
            LockKind::Ticket => Some(Protocol::Fifo { shared_word: true }),
            LockKind::Mcs => Some(Protocol::Fifo { shared_word: false }),
            LockKind::Tas => Some(Protocol::Tas),
            _ => None,
        }
    }

    /// A spinner that returns from its host has to look at the lock: it may be free, and nobody
    /// told it so.
    pub fn looks(self) -> bool {
        matches!(self, Protocol::Tas)
    }

    fn shared_word(self) -> bool {
        self != Protocol::Fifo { shared_word: false }
    }
}

/// A lock: who has it or is next for it, and who waits, in the order they came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lock {
    pub protocol: Protocol,
    pub owner: u32,
    head: u32,
    tail: u32,
    waiters: u32,
    /// Runs while the owner is off its pCPU.
    pub off: OffClock,
}

impl Lock {
    pub fn free(protocol: Protocol) -> Lock {
        Lock { protocol, owner: NONE, head: NONE, tail: NONE, waiters: 0, off: OffClock::default() }
    }
}

impl Sim {
    fn lock_index(&self, v: u32, number: u32) -> u32 {
        self.vcpus[v as usize].vm * LOCKS + number
    }

    /// Whether `v`, running, has the lock at once; else it spins.
    pub(crate) fn lock(&mut self, v: u32, number: u32) -> bool {
        let index = self.lock_index(v, number);
        if self.locks[index as usize].owner == NONE {
            self.own(v, index);
            let vm = self.vcpus[v as usize].vm as usize;
            self.vms[vm].wait_hist[self.lock_bucket] += 1;
            return true;
        }
        self.join_queue(v, index);
        let off_mark_ns = self.locks[index as usize].off.at(self.now_ns);
        let vcpu = &mut self.vcpus[v as usize];
        vcpu.lock = index;
        vcpu.wait_since_ns = self.now_ns;
        vcpu.off_mark_ns = off_mark_ns;
        vcpu.doing = Doing::SpinLock;
        vcpu.spun_ns = 0;
        false
    }

    pub(crate) fn unlock(&mut self, v: u32, number: u32) {
        let index = self.lock_index(v, number);
        let vcpu = &mut self.vcpus[v as usize];
        assert!(vcpu.owned & 1 << number != 0, "vCPU {v} releases a lock it does not hold");
        vcpu.owned &= !(1 << number);
        let lock = &mut self.locks[index as usize];
        lock.owner = NONE;
        lock.off.set(false, self.now_ns);
        let next = match lock.protocol {
            Protocol::Fifo { .. } => self.fifo_next(index),
            Protocol::Tas => self.tas_next(index),
        };
        if next != NONE {
            self.hand_over(next, index);
        }
    }

    /// A spinner looks at its lock, back in its guest: whether it has it now.
    pub(crate) fn look(&mut self, v: u32) -> bool {
        let index = self.vcpus[v as usize].lock;
        let lock = &self.locks[index as usize];
        if !lock.protocol.looks() || lock.owner != NONE {
            return false;
        }
        self.hand_over(v, index);
        true
    }

    fn is_in_guest(&self, v: u32) -> bool {
        let vcpu = &self.vcpus[v as usize];
        vcpu.state == State::Running && vcpu.host_ns() == 0
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

    /// The lock is free and goes to `v`, who waits for it. It is moved on at once, whatever its pCPU
    /// does: what it does next it does when it runs.
    fn hand_over(&mut self, v: u32, index: u32) {
        self.account(v);
        self.leave_queue(v, index);
        let lock = &self.locks[index as usize];
        let (waiters, shared_word) = (lock.waiters, lock.protocol.shared_word());
        self.own(v, index);
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

    fn join_queue(&mut self, v: u32, index: u32) {
        let lock = &mut self.locks[index as usize];
        let last = std::mem::replace(&mut lock.tail, v);
        lock.waiters += 1;
        self.vcpus[v as usize].behind = NONE;
        if last == NONE {
            lock.head = v;
        } else {
            self.vcpus[last as usize].behind = v;
        }
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
            self.locks[index as usize].tail = before;
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
        self.watch_wait(v, cycles);
    }
}
