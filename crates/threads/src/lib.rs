// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads machine: pthreads as vCPUs on this computer, under the locks of `locks/`.

pub mod locks;
