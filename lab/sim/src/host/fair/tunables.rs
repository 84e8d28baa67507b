// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fair scheduler's times, and in what its versions differ.

use crate::core::{Host, Kernel};

/// Times the scheduler works with, ns.
#[derive(Debug, Clone, Copy)]
pub struct Tunables {
    pub(in crate::host) eevdf: bool,
    pub(super) latency_ns: u64,
    /// CFS: shortest slice; EEVDF: the slice.
    pub(in crate::host) slice_ns: u64,
    pub(super) wakeup_ns: u64,
    pub(super) yields_count: bool,
    /// CFS forgets a buddy when it is picked (pick_next_entity()), since 5.14 only when it is put on
    /// the pCPU (set_next_entity()): there who yields and goes on is still skipped the next time.
    pub(super) picks_forget: bool,
    /// EEVDF: a yielder gives up the rest of its slice in virtual time as well (upstream commit
    /// 79104becf42b, in 6.18 and in 6.12's stable series), not only its deadline.
    pub(super) yields_forfeit: bool,
}

impl Tunables {
    /// As the host's kernel sets them at boot, the slice replaced where the host says so.
    /// `alone`: every vCPU is alone in a group of its own. There EEVDF's yield costs it nothing, as
    /// it moves the task within its group; CFS's skips the group as well (set_skip_buddy()).
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
