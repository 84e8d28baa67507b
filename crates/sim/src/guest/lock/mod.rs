// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's locks as waiting protocols: who waits, who is next, and what a waiter does meanwhile.
//!
//! Here is what all of them share: the queue of waiters, who owns a lock, how it changes hands and
//! what that costs. A file a family says who is next and what a waiter does. A waiter that spins has
//! an event only where its protocol makes it look, give up or halt, so that a hand-over is O(1)
//! events; releases that find the next in line missing walk the queue.

use super::time::OffClock;
use super::{Cpu, Doing, Guest, BUCKETS};
use crate::core::{Core, State};
use crate::engine::{LockId, VcpuId};

mod fifo;
mod halt;
mod lease;
pub mod params;
mod preemptable;
mod pv_queued;
mod pv_ticket;
mod stall;
mod tas;

pub use params::Budgets;
pub use stall::Stalls;

use unspin_guest_abi as abi;

/// Locks a VM has.
pub const LOCKS: u32 = abi::LOCKS_MAX as u32;
/// The same where its threads send each other messages: a lock for each socket besides.
pub const LOCKS_WITH_SOCKETS: u32 = u128::BITS;
const _: () = assert!(LOCKS.is_power_of_two() && LOCKS_WITH_SOCKETS.is_power_of_two());

/// How those that find a lock taken wait for it. Times in ns, [`params::FOREVER`]: without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// In the order they came, spinning (`ticket`, `mcs`). `shared_word`: all on one word.
    Fifo { shared_word: bool },
    /// Whoever spins when it is released may have it.
    Tas,
    /// In the order they came, until n * `tau_ns` has passed; one that competes halts after
    /// `halt_ns`.
    Preemptable { tau_ns: u64, halt_ns: u64 },
    /// In the order they came; a waiter halts when its spin is over. A release kicks the halted
    /// among the next `kicks`.
    PvTicket { spin: Spin, kicks: u32 },
    /// The first waits for the lock, the others to be first; newcomers may overtake them unless
    /// `in_order`.
    PvQueued { spin_ns: u64, in_order: bool },
    /// Whoever looks at the right time may have it; the others halt in line, for their lease.
    Lease,
}

/// How long a waiter of a pv-ticket lock spins before it halts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spin {
    Fixed {
        ns: u64,
    },
    /// By how many tickets were before it when it drew its own.
    Distance,
    /// `ns`, doubled for the whole lock whenever somebody halts.
    Doubling {
        ns: u64,
        doublings_max: u32,
    },
}

/// A lock: who has it or is next for it, and who waits, in the order they came.
#[derive(Debug, Clone, Copy)]
pub struct Lock {
    pub protocol: Protocol,
    pub owner: VcpuId,
    /// The lock is free and this waiter, off its pCPU, is next in line.
    heir: VcpuId,
    head: VcpuId,
    tail: VcpuId,
    waiters: u32,
    /// Waiters that are past their turn or their time.
    competing: u32,
    doublings: u32,
    /// The first in line of a lease lock, and whether it wants the lock before all others.
    line_heir: VcpuId,
    wish: bool,
    /// Requests made and granted so far, and when the last grant ended.
    requests: u64,
    granted: u64,
    granted_at_ns: u64,
    /// Runs while the owner, or the heir, is off its pCPU.
    pub off: OffClock,
}

impl Lock {
    pub fn free(protocol: Protocol) -> Lock {
        Lock {
            protocol,
            owner: VcpuId::NONE,
            heir: VcpuId::NONE,
            head: VcpuId::NONE,
            tail: VcpuId::NONE,
            waiters: 0,
            competing: 0,
            doublings: 0,
            line_heir: VcpuId::NONE,
            wish: false,
            requests: 0,
            granted: 0,
            granted_at_ns: 0,
            off: OffClock::default(),
        }
    }

    fn shared_word(&self) -> bool {
        // Of a lease lock's waiters few look at it, and seldom.
        !matches!(
            self.protocol,
            Protocol::Fifo { shared_word: false } | Protocol::PvQueued { .. } | Protocol::Lease
        )
    }
}

/// What a vCPU that waits for a lock keeps.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    /// Lock it waits for (index of all locks), and who waits behind it.
    pub lock: LockId,
    behind: VcpuId,
    /// Number of its request, and how many were before it then.
    ticket: u64,
    ahead: u32,
    /// It competes: past its turn or its time (preemptable), or first in the queue (pv-queued).
    competing: bool,
    /// Its budget begins when it is back in its guest.
    budget_pending: bool,
    /// When its budget began, and when it ends.
    since_ns: u64,
    until_ns: u64,
    /// When it was last seen spinning.
    seen_ns: u64,
    /// Spun in this wait, and whether that was counted as a stall.
    pub spun_ns: u64,
    stalled: bool,
    /// ASMan's module has reported it.
    pub reported: bool,
    /// What it does, if its lock is a lease lock.
    stage: lease::Stage,
    pub began_ns: u64,
    /// When it found that it has the lock it got last, and when it had it.
    noticed_ns: u64,
    took_ns: u64,
}

impl Wait {
    pub const NONE: Wait = Wait {
        lock: LockId::NONE,
        behind: VcpuId::NONE,
        ticket: 0,
        ahead: 0,
        competing: false,
        budget_pending: false,
        since_ns: 0,
        until_ns: 0,
        seen_ns: 0,
        spun_ns: 0,
        stalled: false,
        reported: false,
        stage: lease::Stage::InLine,
        began_ns: 0,
        noticed_ns: 0,
        took_ns: 0,
    };

    /// It spun for `ns` up to now.
    pub fn spun(&mut self, now_ns: u64, ns: u64) {
        self.seen_ns = now_ns;
        self.spun_ns += ns;
    }
}

impl Guest {
    /// A lock's budget as its header has it, in this host's time.
    fn lock_budget_ns(&self, ns: u64) -> u64 {
        let (times, by) = self.lock_time;
        if times == by || ns == u64::MAX {
            return ns;
        }
        let scaled = u128::from(ns) * u128::from(times) / u128::from(by);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Whether `v`, running, has the lock at once; else it waits.
    pub fn lock(&mut self, core: &mut Core, v: VcpuId, number: u32) -> bool {
        let index = self.lock_index(core, v, number);
        let now = core.now_ns;
        let lock = &mut self.locks[index];
        let ticket = lock.requests;
        lock.requests += 1;
        let others_first = match lock.protocol {
            Protocol::Preemptable { .. } | Protocol::PvQueued { in_order: true, .. } => {
                lock.waiters > 0
            }
            Protocol::Lease => lock.wish,
            Protocol::Fifo { .. }
            | Protocol::Tas
            | Protocol::PvTicket { .. }
            | Protocol::PvQueued { in_order: false, .. } => false,
        };
        if lock.owner == VcpuId::NONE && !others_first {
            self.own_at_once(core, v, index);
            return true;
        }
        self.join_queue(v, index);
        let lock = &self.locks[index];
        let protocol = lock.protocol;
        let (off_mark_ns, granted) = (lock.off.at(now), lock.granted);
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
            ..Wait::NONE
        };
        match protocol {
            Protocol::Fifo { .. } | Protocol::Tas => false,
            Protocol::Preemptable { .. } => self.preemptable_begin(core, v),
            Protocol::PvTicket { .. } => {
                self.pv_ticket_spin(core, v);
                false
            }
            Protocol::PvQueued { .. } => {
                self.pv_queued_begin(core, v);
                false
            }
            Protocol::Lease => {
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
            lock.granted += 1;
            lock.granted_at_ns = core.now_ns;
            return;
        }
        match lock.protocol {
            Protocol::Fifo { .. } => self.fifo_release(core, index),
            Protocol::Tas => self.tas_release(core, index),
            Protocol::Preemptable { .. } => self.preemptable_release(core, v, index),
            Protocol::PvTicket { kicks, .. } => self.pv_ticket_release(core, v, index, kicks),
            Protocol::PvQueued { .. } => self.pv_queued_release(core, v, index),
            Protocol::Lease => self.lease_release(core, index),
        }
    }

    /// A spinner looks at its lock: it is back in its guest, or its time is over. Whether it has the
    /// lock now.
    pub fn look(&mut self, core: &mut Core, v: VcpuId) -> bool {
        let index = self.cpus[v].wait.lock;
        let lock = &self.locks[index];
        let has_it = match lock.protocol {
            Protocol::Fifo { .. } => false,
            Protocol::Tas => self.try_free(core, v, index),
            Protocol::Preemptable { .. } => self.preemptable_look(core, v, index),
            Protocol::PvTicket { .. } => {
                self.pv_ticket_look(core, v);
                false
            }
            Protocol::PvQueued { .. } => self.pv_queued_look(core, v, index),
            Protocol::Lease => self.lease_look(core, v, index),
        };
        self.cpus[v].wait.seen_ns = core.now_ns;
        has_it
    }

    /// How long `v`, which spins, may spin in its guest before it has to look at its lock, once its
    /// host lets it: 0 where it has to look at once.
    pub fn until_look_ns(&self, core: &Core, v: VcpuId) -> u64 {
        let vcpu = &self.cpus[v];
        let lock = &self.locks[vcpu.wait.lock];
        let at_ns = match lock.protocol {
            Protocol::Fifo { .. } => return u64::MAX,
            Protocol::Tas if core.vcpus[v].ledger.host_ns() > 0 => 0,
            Protocol::Tas => u64::MAX,
            Protocol::Preemptable { .. } => self.preemptable_look_ns(core, v),
            Protocol::PvTicket { .. } => vcpu.wait.budget_end_ns(),
            Protocol::PvQueued { .. } if core.vcpus[v].ledger.host_ns() > 0 => 0,
            Protocol::PvQueued { .. } => vcpu.wait.budget_end_ns(),
            Protocol::Lease => self.lease_look_ns(core, v),
        };
        let spins_from_ns = core.now_ns + core.vcpus[v].ledger.host_ns();
        at_ns.saturating_sub(spins_from_ns)
    }

    fn try_free(&mut self, core: &mut Core, v: VcpuId, index: LockId) -> bool {
        if self.locks[index].owner != VcpuId::NONE {
            return false;
        }
        self.hand_over(core, v, index);
        true
    }

    fn is_in_guest(&self, core: &Core, v: VcpuId) -> bool {
        let vcpu = &core.vcpus[v];
        vcpu.on.state == State::Running
            && vcpu.ledger.host_ns() == 0
            && self.cpus[v].run.doing == Doing::SpinLock
    }

    /// Any of the waiters that spin in their guests right now and of which `may` is true; [`VcpuId::NONE`]
    /// where there is none. Accounts for every waiter.
    fn draw_spinner(&mut self, core: &mut Core, index: LockId, may: fn(&Cpu) -> bool) -> VcpuId {
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

    fn own_at_once(&mut self, core: &mut Core, v: VcpuId, index: LockId) {
        self.own(core, v, index);
        let vm = core.vcpus[v].vm;
        self.vms[vm].wait_hist[self.lock_bucket] += 1;
    }

    #[inline]
    fn own(&mut self, core: &mut Core, v: VcpuId, index: LockId) {
        let number = self.lock_number(index);
        let now = core.now_ns;
        self.clear_heir(core, index);
        let vcpu = &mut self.cpus[v];
        vcpu.owned |= 1 << number;
        vcpu.acquisitions += 1;
        let runs = core.vcpus[v].on.state == State::Running;
        let lock = &mut self.locks[index];
        debug_assert_eq!(lock.owner, VcpuId::NONE);
        lock.owner = v;
        lock.off.set(!runs, now);
    }

    /// The lock is free, and all wait for `v`, which is off its pCPU or with its host.
    fn set_heir(&mut self, core: &mut Core, v: VcpuId, index: LockId) {
        let number = self.lock_number(index);
        self.clear_heir(core, index);
        let vcpu = &mut self.cpus[v];
        vcpu.owned |= 1 << number;
        let runs = core.vcpus[v].on.state == State::Running;
        let lock = &mut self.locks[index];
        lock.heir = v;
        lock.off.set(!runs, core.now_ns);
    }

    fn clear_heir(&mut self, core: &mut Core, index: LockId) {
        let number = self.lock_number(index);
        let lock = &mut self.locks[index];
        if lock.heir != VcpuId::NONE {
            let heir = std::mem::replace(&mut lock.heir, VcpuId::NONE);
            self.cpus[heir].owned &= !(1 << number);
            lock.off.set(false, core.now_ns);
        }
    }

    /// The lock is free and goes to `v`, who waits for it. It is moved on at once, whatever its pCPU
    /// does: what it does next it does when it runs.
    fn hand_over(&mut self, core: &mut Core, v: VcpuId, index: LockId) {
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
        vcpu.wait.took_ns = handoff_ns;
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

    fn join_queue(&mut self, v: VcpuId, index: LockId) {
        let lock = &mut self.locks[index];
        let last = std::mem::replace(&mut lock.tail, v);
        lock.waiters += 1;
        if last == VcpuId::NONE {
            lock.head = v;
        } else {
            self.cpus[last].wait.behind = v;
        }
    }

    fn leave_queue(&mut self, v: VcpuId, index: LockId) {
        let wait = &mut self.cpus[v].wait;
        let behind = std::mem::replace(&mut wait.behind, VcpuId::NONE);
        let competed = std::mem::take(&mut wait.competing);
        let lock = &mut self.locks[index];
        lock.waiters -= 1;
        lock.competing -= u32::from(competed);
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

    fn set_competing(&mut self, v: VcpuId, index: LockId) {
        let wait = &mut self.cpus[v].wait;
        debug_assert!(!wait.competing);
        wait.competing = true;
        self.locks[index].competing += 1;
    }

    /// `v` runs, and finds that it has its lock as soon as the host lets its guest go on.
    pub fn notice_lock(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &mut self.cpus[v];
        vcpu.notice_lock = false;
        vcpu.wait.noticed_ns = core.now_ns + core.vcpus[v].ledger.host_ns();
        vcpu.wait.took_ns += vcpu.wait.noticed_ns;
        let wait_ns = vcpu.wait.noticed_ns - vcpu.wait.began_ns;
        let cycles = core.cycles_fast(wait_ns);
        let bucket = (63 - (cycles | 1).leading_zeros() as usize).min(BUCKETS - 1);
        let vm = &mut self.vms[core.vcpus[v].vm];
        vm.wait_hist[bucket] += 1;
        vm.max_wait_cycles = vm.max_wait_cycles.max(cycles);
        self.watch_wait(core, v, cycles);
    }
}

impl Wait {
    /// When its budget ends: at once where it has yet to begin.
    fn budget_end_ns(&self) -> u64 {
        if self.budget_pending {
            0
        } else {
            self.until_ns
        }
    }

    /// It is in its guest: whether its budget of `ns`, which begins now if it had not, is over.
    fn budget_spent(&mut self, now_ns: u64, ns: u64) -> bool {
        if std::mem::take(&mut self.budget_pending) {
            self.until_ns = now_ns.saturating_add(ns);
        }
        now_ns >= self.until_ns
    }
}
