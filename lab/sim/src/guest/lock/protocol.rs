// SPDX-License-Identifier: MIT OR Apache-2.0
//! How vCPUs wait for a held lock, and the state of a lock for each way.

use crate::engine::VcpuId;

/// How vCPUs wait for a held lock. Times in ns; [`FOREVER`](super::params::FOREVER): without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// In order of arrival, spinning (`ticket`, `mcs`). The first waiter has the lock as soon as it
    /// is released, even while it has no pCPU: lock waiter preemption. `shared_word`: all spin on one
    /// word.
    Fifo { shared_word: bool },
    /// Any vCPU whose guest spins when the lock is released may get it. The others check when they
    /// return.
    Tas,
    /// In order of arrival, until their time has passed.
    Preemptable(Preemptable),
    /// In order of arrival. A waiter halts when its spin is over. A release kicks the halted among
    /// the next `kicks`.
    PvTicket { spin: Spin, kicks: u32 },
    /// The first waits for the lock, the others wait to be first; newcomers may overtake them
    /// unless `in_order`.
    PvQueued { spin_ns: u64, in_order: bool },
    /// Any vCPU that checks at the right time may get it; the others halt in line, for their lease.
    Lease(Lease),
}

impl Protocol {
    /// Whether it is a queued lock that nobody overtakes.
    pub(super) fn is_in_order(&self) -> bool {
        matches!(self, Protocol::PvQueued { in_order: true, .. })
    }
}

/// A waiter competes after n * `tau_ns`, and halts after `halt_ns` of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preemptable {
    pub tau_ns: u64,
    pub halt_ns: u64,
    /// Waiters that compete: past their turn or their time.
    pub competing: u32,
    pub last_release_ns: u64,
}

impl Preemptable {
    pub fn new(tau_ns: u64, halt_ns: u64) -> Preemptable {
        Preemptable { tau_ns, halt_ns, competing: 0, last_release_ns: 0 }
    }
}

/// The first in line (the heir), and whether it wants the lock before all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub heir: VcpuId,
    pub wish: bool,
}

impl Lease {
    pub const FREE: Lease = Lease { heir: VcpuId::NONE, wish: false };
}

/// How long a waiter of a pv-ticket lock spins before it halts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spin {
    Fixed {
        ns: u64,
    },
    /// Depends on the number of tickets before its own when it drew it.
    Distance,
    /// `ns`, doubled for the whole lock whenever a waiter halts: `doublings` times so far.
    Doubling {
        ns: u64,
        doublings_max: u32,
        doublings: u32,
    },
}
