// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches the VMs of this host: finds them, and reads the states of their vCPUs and further facts.

mod args;
mod counts;
pub mod facts;
mod kernel;
mod ready_by;
mod sample;
mod scan;
mod scripted;
mod synthetic;

pub use args::SourceArgs;
pub use counts::Counts;
pub use kernel::Kernel;
pub use ready_by::{in_words, ready_by, ReadyBy, Rest, Taker};
pub use sample::{did, words, Held, Running, Sample, Source, Watched, SETTLE};
pub use scripted::{Mixes, Paces, Script, Scripted};
#[cfg(test)]
pub use synthetic::Synthetic;
