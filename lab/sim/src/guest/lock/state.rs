// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a lock, the state of a vCPU that waits for one, and statistics of waits.

use super::super::off_clock::OffClock;
use super::protocol::{Lease, Preemptable, Protocol};
use crate::engine::{LockId, VcpuId};
use unspin_guest_abi as abi;

/// Number of locks of a VM.
pub const LOCKS: u32 = abi::LOCKS_MAX as u32;
/// The same if the VM's threads use sockets: there is also a lock for each socket.
pub const LOCKS_WITH_SOCKETS: u32 = u128::BITS;
const _: () = assert!(LOCKS.is_power_of_two() && LOCKS_WITH_SOCKETS.is_power_of_two());

/// Buckets of the histogram of lock waits, as in the guest.
pub const BUCKETS: usize = abi::WAIT_BUCKETS;

/// A lock: the vCPU that holds it or is next for it, and the waiters in order of arrival.
#[derive(Debug, Clone, Copy)]
pub struct Lock {
    pub protocol: Protocol,
    pub owner: VcpuId,
    /// The lock is free, and this waiter without a pCPU is next in line.
    pub(super) absent_next: VcpuId,
    pub(super) head: VcpuId,
    pub(super) tail: VcpuId,
    pub(super) waiters: u32,
    /// Requests made, and releases.
    pub(super) requests: u64,
    pub(super) releases: u64,
    /// Runs while the owner, or the next vCPU for the free lock, is off its pCPU.
    pub off: OffClock,
}

impl Lock {
    pub fn free(protocol: Protocol) -> Lock {
        Lock {
            protocol,
            owner: VcpuId::NONE,
            absent_next: VcpuId::NONE,
            head: VcpuId::NONE,
            tail: VcpuId::NONE,
            waiters: 0,
            requests: 0,
            releases: 0,
            off: OffClock::default(),
        }
    }

    #[inline]
    pub(super) fn preemptable(&self) -> &Preemptable {
        let Protocol::Preemptable(kept) = &self.protocol else { unreachable!() };
        kept
    }

    #[inline]
    pub(super) fn preemptable_mut(&mut self) -> &mut Preemptable {
        let Protocol::Preemptable(kept) = &mut self.protocol else { unreachable!() };
        kept
    }

    #[inline]
    pub(super) fn lease(&self) -> &Lease {
        let Protocol::Lease(kept) = &self.protocol else { unreachable!() };
        kept
    }

    #[inline]
    pub(super) fn lease_mut(&mut self) -> &mut Lease {
        let Protocol::Lease(kept) = &mut self.protocol else { unreachable!() };
        kept
    }

    #[inline]
    pub(super) fn shared_word(&self) -> bool {
        // Few waiters of a lease lock look at it, and seldom.
        !matches!(
            self.protocol,
            Protocol::Fifo { shared_word: false } | Protocol::PvQueued { .. } | Protocol::Lease(_)
        )
    }
}

/// State of a vCPU that waits for a lock.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wait {
    /// The lock it waits for (index of all locks), and the vCPU that waits behind it.
    pub lock: LockId,
    pub(super) behind: VcpuId,
    /// Number of its request, and how many were before it then.
    pub(super) ticket: u64,
    pub(super) ahead: u32,
    /// It competes: past its turn or its time (preemptable), or first in the queue (pv-queued).
    pub(super) competing: bool,
    /// It is first in the queue of pv-queued and spins there: nobody may overtake it.
    pub(super) pending: bool,
    /// Its budget begins when it is back in its guest.
    pub(super) budget_pending: bool,
    /// When its budget began, and when it ends.
    pub(super) since_ns: u64,
    pub(super) until_ns: u64,
    /// When it was last seen spinning.
    pub(super) seen_ns: u64,
    /// Spun in this wait, and whether that was counted as a stall.
    pub spun_ns: u64,
    pub(super) stalled: bool,
    /// Powers of two of iterations of its loop that it has reached.
    pub(super) turns_seen: u8,
    /// ASMan's module has reported it.
    pub reported: bool,
    /// What it does if its lock is a lease lock.
    pub(super) stage: Stage,
    pub began_ns: u64,
    /// When it noticed that it has its last lock; how long the hand-over takes, and when it ends.
    pub(super) noticed_ns: u64,
    pub(super) handoff_ns: u64,
    pub(super) owns_from_ns: u64,
}

impl Wait {
    /// It has spun for `ns` until now.
    #[inline]
    pub fn spun(&mut self, now_ns: u64, ns: u64) {
        self.seen_ns = now_ns;
        self.spun_ns += ns;
    }

    /// The end of its budget; now if it has not begun.
    #[inline]
    pub(super) fn budget_end_ns(&self) -> u64 {
        if self.budget_pending {
            0
        } else {
            self.until_ns
        }
    }

    /// It is in its guest. Returns whether its budget of `ns` is over; a budget that had not begun
    /// begins now.
    #[inline]
    pub(super) fn budget_spent(&mut self, now_ns: u64, ns: u64) -> bool {
        if std::mem::take(&mut self.budget_pending) {
            self.until_ns = now_ns.saturating_add(ns);
        }
        now_ns >= self.until_ns
    }
}

/// What a waiter of a lease lock does. `from`: the lock's count of uses when it began. `ends_ns`:
/// its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    /// Looks at the lock from time to time (lease_watch()).
    Watch { from: u64, ends_ns: u64 },
    /// Lets the heir go first, until the wish lapses (lease_wish_lapsed()).
    Courtesy,
    /// Halts until it is the heir. A kick makes it the heir.
    #[default]
    InLine,
    /// The heir: leaves a busy lock to the others for a lease (lease_sit_out()).
    SitOut,
    /// The heir: wants the lock (lease_claim()).
    Claim,
}

/// Stalls of one VM, by the state of the lock when the threshold was over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stalls {
    /// The lock was free: the next in line is preempted, or with its host (N_w).
    pub waiter_preempted: u64,
    /// It was held by a vCPU off its pCPU (N_h).
    pub holder_preempted: u64,
    /// It was held by a vCPU that ran: a long queue. The paper's instrument counts these as N_h.
    pub holder_running: u64,
}

impl Stalls {
    /// N_w / (N_h + N_w) as in the paper's instrument; 0 without stalls.
    pub fn waiter_share(&self) -> f64 {
        self.waiter_preempted as f64 / self.all().max(1) as f64
    }

    /// All stalls.
    pub fn all(&self) -> u64 {
        self.waiter_preempted + self.holder_preempted + self.holder_running
    }

    /// The difference since an earlier reading.
    pub fn since(&self, first: &Stalls) -> Stalls {
        Stalls {
            waiter_preempted: self.waiter_preempted - first.waiter_preempted,
            holder_preempted: self.holder_preempted - first.holder_preempted,
            holder_running: self.holder_running - first.holder_running,
        }
    }
}
