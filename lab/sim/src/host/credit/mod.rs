// SPDX-License-Identifier: MIT OR Apache-2.0
//! Xen's Credit scheduler as the host's: who runs is decided by `lab/policy/c/credit.c`; its clocks and
//! interrupts are in `switch.rs`, its books in `books.rs`, what it learns of vCPUs that should run
//! together in `asman.rs`.
//!
//! Weng, Liu, Yu, Li, "Dynamic Adaptive Scheduling for Virtual Machines" (ASMan), HPDC 2011,
//! sections 3.3, 4.4 and 4.5, and Xen 3.3's `sched_credit.c`, the paper's host: each pCPU ticks by
//! its own clock (10 ms), a vCPU runs for a slice (30 ms) from when it was put on its pCPU, credits
//! are handed out to all at once (every 30 ms). A vCPU that wakes with credit comes first on its
//! pCPU until that ticks (`BOOST`). A pCPU that runs somebody looks at credits when a slice ends,
//! when somebody is boosted or raised, and, on a capped host, when credits are handed out.

mod asman;
mod books;
mod state;
mod switch;

pub use asman::NEIGHBOURS;
pub use state::{CoschedulingStats, Credit};
