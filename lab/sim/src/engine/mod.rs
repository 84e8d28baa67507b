// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ground floor: numbers of things, events in time, the clock, random numbers. Knows no host
//! and no guest.

mod event;
mod ids;
mod queue;
mod rng;
mod time;

pub use event::{Event, Events, Layout};
pub use ids::{LockId, PcpuId, Table, ThreadId, VcpuId, VmId};
pub use queue::{Queue, Timer, TIMERS_MAX};
pub use rng::Rng;
pub use time::Clock;
