// SPDX-License-Identifier: MIT OR Apache-2.0
//! KVM and the module at a PLE exit: windows, selection, accounting.
//!
//! `policy/` makes every decision. These files prepare its input and carry out the result
//! (kmod/entry.c, kmod/pick.c, kmod/epoch.c, `kvm_vcpu_on_spin` of the kernel). The scheduler
//! decides whether a yield succeeds: `pick` requests one target after the other, and gets the
//! result of each.

mod epoch;
mod exit;
mod pick;
mod state;
mod window;

pub use pick::{Ask, Spinner};
pub use state::{Kvm, Module, VcpuExits, VmExits};
