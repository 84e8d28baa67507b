// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pthreads as vCPUs on this computer, under the locks of `locks/`.
//!
//! * [`locks`]: the locks, by name.

pub mod locks;
