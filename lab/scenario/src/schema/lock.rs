// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks of the guests, and their settings.

use crate::schema::names::Named;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    Tas,
    Ticket,
    Mcs,
    Preemptable,
    PvTicket,
    PvPreemptable,
    Oticket,
    OticketSpin,
    OticketWake,
    Iticket,
    LongTicket,
    PvQueued,
    Lease,
}

impl LockKind {
    /// Every lock of `core/locks/`, with its name in scenarios and results.
    pub const ALL: [(&'static str, LockKind); 13] = [
        ("tas", LockKind::Tas),
        ("ticket", LockKind::Ticket),
        ("mcs", LockKind::Mcs),
        ("preemptable", LockKind::Preemptable),
        ("pv-ticket", LockKind::PvTicket),
        ("pv-preemptable", LockKind::PvPreemptable),
        ("oticket", LockKind::Oticket),
        ("oticket-spin", LockKind::OticketSpin),
        ("oticket-wake", LockKind::OticketWake),
        ("iticket", LockKind::Iticket),
        ("long-ticket", LockKind::LongTicket),
        ("pv-queued", LockKind::PvQueued),
        ("lease", LockKind::Lease),
    ];

    /// Its name, as in [`LockKind::ALL`]. With `_` for `-` it is the prefix of the functions in
    /// `core/locks/`.
    pub fn name(self) -> &'static str {
        let known = Self::ALL.iter().find(|(_, kind)| *kind == self);
        known.expect("every lock stands in ALL").0
    }

    /// Whether its waiters halt, which requires CPL 0 in a guest.
    pub fn halts(self) -> bool {
        !matches!(self, LockKind::Tas | LockKind::Ticket | LockKind::Mcs | LockKind::Preemptable)
    }

    /// Whether it has the waiting time τ of VEE'13 (section 4.2).
    pub fn has_tau(self) -> bool {
        matches!(self, LockKind::Preemptable | LockKind::PvPreemptable)
    }
}

/// A lock and its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockChoice {
    pub kind: LockKind,
    /// τ of the preemptable locks, ns; `None` leaves the lock's own (2000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tau_ns: Option<u64>,
    /// How long a waiter of pv-ticket spins before it halts, ns; `None` leaves the lock's own (16000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spin_ns: Option<u64>,
}

impl LockChoice {
    /// The lock with its default settings.
    pub fn plain(kind: LockKind) -> Self {
        LockChoice { kind, tau_ns: None, spin_ns: None }
    }

    /// Its name in reports, with its setting in ns if it has one.
    pub fn label(&self) -> String {
        match self.tau_ns.or(self.spin_ns) {
            None => self.kind.name().to_string(),
            Some(ns) => format!("{}-{ns}ns", self.kind.name()),
        }
    }
}

impl Named for LockKind {
    fn choices() -> Vec<(&'static str, LockKind)> {
        LockKind::ALL.to_vec()
    }
}
