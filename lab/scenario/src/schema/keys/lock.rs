// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of a lock.

use crate::schema::key::{integer, table, Integer};
use crate::schema::lock::LockChoice;

pub(crate) const LOCK_FORMS: &str = "a lock's name, or { preemptable = { tau_ns = N } }";

table! { LOCK: LockChoice = "lock = { preemptable = { … } }",
    "Parameters of `preemptable` and `pv-preemptable`; the other locks have none.";
    TAU_NS: Integer<u64> = "tau_ns", integer(0, 1_000_000_000, " nanoseconds") =>
        .needed("{ tau_ns = N }")
        .help("waiting time τ (VEE 2013, 4.2); 2000 if the lock is given by name only");
}
