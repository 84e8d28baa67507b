// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways in which those that find a lock taken wait for it.

/// How those that find a lock taken wait for it. Times in ns, [`FOREVER`](super::params::FOREVER): without end.
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
