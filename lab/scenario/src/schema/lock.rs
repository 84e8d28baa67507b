// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks of the guests, and their settings.

use crate::schema::names::{named, Named};
use serde::{Deserialize, Serialize};
use strum::{EnumIter, IntoStaticStr};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, EnumIter, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
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
    pub fn all() -> Vec<(&'static str, LockKind)> {
        LockKind::choices()
    }

    /// Its name. With `_` for `-` it is the prefix of the functions in `core/locks/`.
    pub fn name(self) -> &'static str {
        self.into()
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

named!(LockKind);
