// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting times of the locks of core/locks/: their headers' own constants.

use super::protocol::{Lease, Preemptable, Protocol, Spin};
use unspin_scenario::plan::{LockChoice, LockKind};

extern "C" {
    fn unspin_lock_oticket_spin_ns(ahead: u32) -> u64;
}

/// A budget without an end (LOCK_NS_FOREVER).
pub const FOREVER: u64 = u64::MAX;

/// Constants of c/lock_params.c, each as a function.
macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident = $symbol:ident: $type:ty;)*) => {
        extern "C" {
            $(static $symbol: $type;)*
        }

        $($(#[$doc])*
        pub fn $name() -> $type {
            // SAFETY: a constant of c/lock_params.c, of this type, never written.
            unsafe { $symbol }
        })*
    };
}

constants! {
    /// τ of VEE'13 section 4.2, ns.
    tau_ns = unspin_lock_tau_ns: u64;
    /// τ of VEE'13 figure 3 (TIMEOUT_UNIT), ns.
    tau_code_ns = unspin_lock_tau_code_ns: u64;
    /// A wait longer than this is a stall (VEE'13 section 3), ns.
    stall_ns = unspin_lock_stall_ns: u64;
    /// How long a competing waiter of pv-preemptable spins before it halts, ns.
    pv_preemptable_halt_ns = unspin_lock_pv_preemptable_halt_ns: u64;
    /// The stock threshold of pv-ticket, ns.
    pv_ticket_spin_ns = unspin_lock_pv_ticket_spin_ns: u64;
    /// SPIN_MAX_THRESHOLD of APSys'15 figure 5, ns.
    pv_ticket_spin_max_ns = unspin_lock_pv_ticket_spin_max_ns: u64;
    /// OPPORTUNISTIC_WAKEUP_NCPU of APSys'15 figure 5.
    oticket_wakeup_ncpu = unspin_lock_oticket_wakeup_ncpu: u32;
    /// Largest number of doublings of iticket's threshold.
    iticket_doublings_max = unspin_lock_iticket_doublings_max: u32;
    /// SPIN_THRESHOLD of pv-queued, ns.
    pv_queued_spin_ns = unspin_lock_pv_queued_spin_ns: u64;
    /// How long the heir of a lease lock leaves a busy lock to the others, ns.
    lease_ns = unspin_lock_lease_ns: u64;
    /// How long a vCPU that finds a lease lock held looks at it, ns.
    lease_watch_ns = unspin_lock_lease_watch_ns: u64;
    /// Uses after which a vCPU that watches a lease lock finds it busy.
    lease_busy_uses = unspin_lock_lease_busy_uses: u32;
    /// How long the wish of a lease lock's heir stops the others while the lock is free, ns.
    lease_wish_ns = unspin_lock_lease_wish_ns: u64;
}

/// How long a waiter with `ahead` (at least 1) tickets before it spins in oticket, ns.
pub(super) fn oticket_spin_ns(ahead: u32) -> u64 {
    // SAFETY: a pure function of c/lock_params.c.
    unsafe { unspin_lock_oticket_spin_ns(ahead.max(1)) }
}

/// Iterations of a waiting loop per µs in the headers' times: 2048, as in VEE'13 section 3.
pub const TURNS_PER_US: u64 = 2048;

/// Values that replace the headers' budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budgets {
    /// The papers' code counts iterations of a loop. An iteration takes the host's cost
    /// ([`Costs::pause_loop_cycles`](crate::Costs)), not the time that the headers assume.
    pub by_turns: bool,
    /// Iterations for which a waiter of the stock pv-ticket lock spins before it halts; `None`: the
    /// header's.
    pub pv_ticket_turns: Option<u64>,
    /// No vCPU overtakes the queue of pv-queued, as in Linux before 4.5 and in APSys'15.
    pub pv_queued_in_order: bool,
}

/// The time that the headers assume for this many iterations of a waiting loop, ns.
pub fn turns_ns(turns: u64) -> u64 {
    turns.saturating_mul(1000) / TURNS_PER_US
}

impl Protocol {
    /// The protocol of a lock of core/locks/, with its header's times where it has none of its own.
    pub fn of(lock: LockChoice, budgets: &Budgets) -> Protocol {
        let tau_ns = lock.tau_ns.unwrap_or_else(tau_ns);
        let spin_ns = budgets.pv_ticket_turns.map_or_else(pv_ticket_spin_ns, turns_ns);
        let spin = Spin::Fixed { ns: lock.spin_ns.unwrap_or(spin_ns) };
        match lock.kind {
            LockKind::Ticket => Protocol::Fifo { shared_word: true },
            LockKind::Mcs => Protocol::Fifo { shared_word: false },
            LockKind::Tas => Protocol::Tas,
            LockKind::Preemptable => Protocol::Preemptable(Preemptable::new(tau_ns, FOREVER)),
            LockKind::PvPreemptable => {
                Protocol::Preemptable(Preemptable::new(tau_ns, pv_preemptable_halt_ns()))
            }
            LockKind::PvTicket => Protocol::PvTicket { spin, kicks: 1 },
            LockKind::LongTicket => {
                let spin = Spin::Fixed { ns: pv_ticket_spin_max_ns() };
                Protocol::PvTicket { spin, kicks: 1 }
            }
            LockKind::Oticket => {
                Protocol::PvTicket { spin: Spin::Distance, kicks: oticket_wakeup_ncpu() }
            }
            LockKind::OticketSpin => Protocol::PvTicket { spin: Spin::Distance, kicks: 1 },
            LockKind::OticketWake => Protocol::PvTicket { spin, kicks: oticket_wakeup_ncpu() },
            LockKind::Iticket => {
                let doublings_max = iticket_doublings_max();
                let spin = Spin::Doubling { ns: pv_ticket_spin_ns(), doublings_max, doublings: 0 };
                Protocol::PvTicket { spin, kicks: 1 }
            }
            LockKind::PvQueued => {
                let in_order = budgets.pv_queued_in_order;
                Protocol::PvQueued { spin_ns: pv_queued_spin_ns(), in_order }
            }
            LockKind::Lease => Protocol::Lease(Lease::FREE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The papers' numbers: the test notices if a header changes them.
    #[test]
    fn the_headers_have_the_papers_numbers() {
        assert_eq!((tau_ns(), tau_code_ns(), stall_ns()), (2000, 8000, 1000));
        assert_eq!(pv_ticket_spin_ns(), 16_000);
        assert_eq!(pv_ticket_spin_max_ns(), (1u64 << 34) * 1000 / 2048);
        assert_eq!(oticket_spin_ns(1), pv_ticket_spin_max_ns());
        assert_eq!(oticket_spin_ns(17), pv_ticket_spin_max_ns() >> 16);
        assert_eq!(oticket_spin_ns(18), pv_ticket_spin_ns());
        assert_eq!(oticket_wakeup_ncpu(), 4);
        assert_eq!(lease_wish_ns(), tau_ns());
    }

    #[test]
    fn a_scenarios_threshold_replaces_the_headers() {
        let choice = LockChoice { spin_ns: Some(1000), ..LockChoice::plain(LockKind::PvTicket) };
        for (choice, ns) in [(choice, 1000), (LockChoice::plain(LockKind::PvTicket), 16_000)] {
            let protocol = Protocol::of(choice, &Budgets::default());
            assert!(
                matches!(protocol, Protocol::PvTicket { spin: Spin::Fixed { ns: n }, .. } if n == ns)
            );
        }
    }
}
