// SPDX-License-Identifier: MIT OR Apache-2.0
//! How vCPUs that find a lock taken wait for it.

/// How vCPUs that find a lock taken wait for it. Times in ns; [`FOREVER`](super::params::FOREVER):
/// without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// In the order they came, spinning (`ticket`, `mcs`). `shared_word`: all on one word.
    Fifo { shared_word: bool },
    /// Any vCPU that spins when the lock is released may get it.
    Tas,
    /// In order of arrival, until n * `tau_ns` has passed. One that competes halts after `halt_ns`.
    Preemptable { tau_ns: u64, halt_ns: u64 },
    /// In order of arrival. A waiter halts when its spin is over. A release kicks the halted among
    /// the next `kicks`.
    PvTicket { spin: Spin, kicks: u32 },
    /// The first waits for the lock, the others to be first; newcomers may overtake them unless
    /// `in_order`.
    PvQueued { spin_ns: u64, in_order: bool },
    /// Any vCPU that checks at the right time may get it; the others halt in line, for their lease.
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
    /// `ns`, doubled for the whole lock whenever a waiter halts.
    Doubling {
        ns: u64,
        doublings_max: u32,
    },
}
