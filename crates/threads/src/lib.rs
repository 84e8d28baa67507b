// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pthreads as vCPUs on this computer, under the locks of `locks/`.
//!
//! * [`locks`]: the locks, by name.
//! * [`bench`]: one lock, or a peer, under pinned threads.

pub mod bench;
pub mod locks;
