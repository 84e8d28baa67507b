// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fair scheduler's decisions on one pCPU: which task runs next, and whether the running one
//! must be interrupted for it.
//!
//! After `kernel/sched/fair.c`: CFS as of 3.19 and 6.1 (virtual run time, slice, wake-up
//! granularity, the buddies `next` and `skip`), EEVDF as of 6.12 (lag, virtual deadline, run to
//! parity, the buddy `next` while it is eligible). Queues are short here (one task per VM), so they
//! are lists that are searched completely, not trees. Not modelled: the buddy `last` (needs eight
//! tasks), and delayed dequeueing except for its effect on a sleeper's lag. Groups
//! (`host/groups.rs`) give tasks weights.

mod entity;
mod rq;
#[cfg(test)]
mod tests;
mod tunables;

pub use entity::{Entity, WEIGHT_DEFAULT};
pub use rq::{Queues, RunQueue, NONE};
pub use tunables::Tunables;
