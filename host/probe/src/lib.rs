// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches vCPUs by BPF programs in the kernel: how long each is in each
//! [`State`](unspin_diagnosis::State), for whom it waits, and its exits. The programs only count. They
//! do not modify kernel data, and their memory is bounded.

mod error;
mod extent;
mod layout;
mod maps;
mod numbers;
mod places;
mod plan;
mod probe;
#[cfg(test)]
mod ready;
mod sum;
mod takers;
mod types;
mod vms;
mod wait;

pub use error::Error;
pub use extent::VCPUS_MAX;
pub use layout::VMS_MAX;
pub use plan::{Exit, Extent, Plan, Throttling};
pub use probe::{Probe, Seen, Thread, NUMBERS};
pub use takers::{Taken, Takers};
pub use vms::SeenVm;
