// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pthreads as vCPUs on this computer, under the locks of `core/locks/`.
//!
//! * [`locks`]: the locks, by name.
//! * [`machine`]: a run of a plan, with threads as vCPUs: machine `threads` of `unspin-lab bench`.

pub mod locks;
pub mod machine;
mod vm;
