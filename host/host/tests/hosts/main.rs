// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts made of files, and this computer with a VM under QEMU.

mod fake;
mod groups;
mod layouts;
mod matrix;
mod names;
mod remedies;
mod scan;
