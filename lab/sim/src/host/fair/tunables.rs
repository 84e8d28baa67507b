// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fair scheduler's times, and the differences between its versions.

use crate::core::{Host, Kernel};

/// The scheduler's times, ns.
#[derive(Debug, Clone, Copy)]
pub struct Tunables {
    pub(in crate::host) eevdf: bool,
    pub(super) latency_ns: u64,
    /// CFS: shortest slice; EEVDF: the slice.
    pub(in crate::host) slice_ns: u64,
    pub(super) wakeup_ns: u64,
    pub(super) yields_count: bool,
    /// CFS forgets a buddy when it is picked (pick_next_entity()); since 5.14 only when it is put
    /// on the pCPU (set_next_entity()). There, a task that yields and continues is still skipped
    /// the next time.
    pub(super) picks_forget: bool,
    /// EEVDF: a yield also forfeits the rest of its slice in virtual time (upstream commit
    /// 79104becf42b, in 6.18 and in 6.12's stable series), not only its deadline.
    pub(super) yields_forfeit: bool,
}

impl Tunables {
    /// The values that the host's kernel sets at boot, with the host's slice if it has one.
    /// `alone`: every vCPU is alone in its own group. There EEVDF's yield costs it nothing, because
    /// it moves the task within its group; CFS also skips the group (set_skip_buddy()).
    pub fn new(host: &Host, alone: bool) -> Tunables {
        let eevdf = host.kernel.is_eevdf();
        let yields_count = !(alone && eevdf);
        let own = host.scaled_ns(if eevdf { 700_000 } else { 750_000 });
        Tunables {
            eevdf,
            latency_ns: host.fair_period_ns(),
            slice_ns: host.slice_ns.unwrap_or(own),
            wakeup_ns: host.scaled_ns(1_000_000),
            yields_count,
            picks_forget: matches!(host.kernel, Kernel::Proposal2012 | Kernel::V3_19),
            yields_forfeit: host.kernel != Kernel::V6_13,
        }
    }
}
