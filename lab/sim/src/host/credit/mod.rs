// SPDX-License-Identifier: MIT OR Apache-2.0
//! Credit as the host's scheduler. `lab/policy/c/credit.c` decides which vCPU runs. There are two:
//! the vCPU with the most credit runs, as under sched_ext, or Xen 3.3's ranks decide (`rules.rs`).
//! Their clocks and interrupts are in `switch.rs`, Xen's accounting in `books.rs`, and what they learn
//! of vCPUs that should run together in `asman.rs`.
//!
//! Weng, Liu, Yu, Li, "Dynamic Adaptive Scheduling for Virtual Machines" (ASMan), HPDC 2011,
//! sections 3.3, 4.4 and 4.5, and Xen 3.3's `sched_credit.c`, the paper's host. With Xen's ranks
//! each pCPU ticks by its own clock (10 ms). A vCPU runs for a slice (30 ms) from when it was put
//! on its pCPU. Credits are distributed to all at once (every 30 ms). A vCPU that wakes with credit
//! comes first on its pCPU until that ticks (`BOOST`). A pCPU that runs a vCPU considers credits
//! when a slice ends, when a vCPU is boosted or raised, and, on a capped host, when credits are
//! distributed.

mod asman;
mod books;
mod rules;
mod state;
mod switch;

pub use asman::NEIGHBOURS;
pub use state::{CoschedulingStats, Credit};
