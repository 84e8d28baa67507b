// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lowest part: numbers of objects, timed events, the clock, random numbers. It does not depend
//! on hosts or guests.

mod event;
mod ids;
mod queue;
mod rng;
mod time;

pub use event::{Event, Events, Layout};
pub use ids::{LockId, PcpuId, Table, ThreadId, VcpuId, VmId};
pub use queue::TIMERS_MAX;
pub use rng::Rng;
pub use time::Clock;
