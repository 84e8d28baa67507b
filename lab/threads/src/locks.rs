// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks of `core/locks/`, by name.

/// One lock: a header, and the prefix of its functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// Prefix of the C functions, as in `unspin_ticket_lock()`.
    pub name: &'static str,
    /// File in `core/locks/`.
    pub header: &'static str,
    /// Whether lock and unlock take a node.
    pub node: bool,
    /// C expression for the first bytes of a free lock whose counters are at `v` (16 bits); `None` for
    /// locks without counters.
    pub start: Option<&'static str>,
}

const fn plain(name: &'static str, header: &'static str) -> Lock {
    Lock { name, header, node: false, start: None }
}

const fn counting(name: &'static str, header: &'static str, start: &'static str) -> Lock {
    Lock { name, header, node: false, start: Some(start) }
}

const PV_TICKET_START: &str = "(v&0x7fff)<<1|(v&0x7fff)<<17";

/// All locks.
pub const LOCKS: &[Lock] = &[
    plain("tas", "tas.h"),
    plain("tas_nap", "tas_nap.h"),
    counting("ticket", "ticket.h", "v<<16|v"),
    Lock { name: "mcs", header: "mcs.h", node: true, start: None },
    counting("preemptable", "preemptable.h", "(v&0x7fff)<<1|v<<16"),
    counting("pv_preemptable", "pv_preemptable.h", "(v&0x7fff)<<1|v<<17"),
    counting("pv_ticket", "pv_ticket.h", PV_TICKET_START),
    counting("oticket", "oticket.h", PV_TICKET_START),
    counting("oticket_spin", "oticket.h", PV_TICKET_START),
    counting("oticket_wake", "oticket.h", PV_TICKET_START),
    counting("iticket", "oticket.h", PV_TICKET_START),
    counting("long_ticket", "oticket.h", PV_TICKET_START),
    plain("pv_queued", "pv_queued.h"),
    counting("lease", "lease.h", "(v&0x7fff)<<1|(v<<16|v)*0x100000000ull"),
];

/// The lock with this name.
pub fn by_name(name: &str) -> Option<&'static Lock> {
    LOCKS.iter().find(|lock| lock.name == name)
}
