// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watching the VMs of this host: which there are, what their vCPUs do, and what is known besides.

pub mod facts;
mod kernel;
mod sample;
mod scan;
mod synthetic;

pub use kernel::{cannot, Kernel};
pub use sample::{did, Running, Sample, Source, Watched};
pub use synthetic::{parse_size, Synthetic};
