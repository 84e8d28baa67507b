// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watching the VMs of this host: which there are, what their vCPUs do, and what is known besides.

mod args;
pub mod facts;
mod kernel;
mod sample;
mod scan;
mod synthetic;

pub use args::SourceArgs;
pub use kernel::cannot;
#[cfg(test)]
pub use kernel::Kernel;
pub use sample::{did, Running, Sample, Source, Watched};
#[cfg(test)]
pub use synthetic::Synthetic;
