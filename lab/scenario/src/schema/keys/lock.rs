// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of a lock.

use crate::schema::key::{integer, table, Integer, Machines};
use crate::schema::lock::LockChoice;

pub(crate) const LOCK_FORMS: &str =
    "a lock's name, { preemptable = { tau_ns = N } } or { pv-ticket = { spin_ns = N } }";

table! { LOCK: LockChoice = "lock = { preemptable = { … } }",
    "Parameters of `preemptable` and `pv-preemptable`.";
    TAU_NS: Integer<u64> = "tau_ns", integer(0, 1_000_000_000, " nanoseconds") =>
        .needed("{ tau_ns = N }")
        .help("waiting time τ (VEE 2013, 4.2); 2000 if the lock is given by name only. It also passes \
               while the waiter has no CPU; the paper counts iterations");
}

table! { PV_TICKET: LockChoice = "lock = { pv-ticket = { … } }",
    "Parameters of `pv-ticket`. The other locks have none.";
    SPIN_NS: Integer<u64> = "spin_ns", integer(0, 1_000_000_000, " nanoseconds") =>
        .needed("{ spin_ns = N }")
        .help("how long a waiter spins before it halts; 16000 if the lock is given by name only, 1000 in VEE 2013")
        .on(Machines::Hypervisors);
}
