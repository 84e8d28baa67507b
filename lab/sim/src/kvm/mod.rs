// SPDX-License-Identifier: MIT OR Apache-2.0
//! KVM and the module on a PLE exit: windows, selection, accounting.
//!
//! Every decision is one of `policy/`; here is what it is told and what follows (kmod/entry.c,
//! kmod/pick.c, kmod/epoch.c, `kvm_vcpu_on_spin` of the kernel). Whether a yield succeeds is the
//! scheduler's business: `pick` asks for one after the other, and hears what came of it.

mod epoch;
mod exit;
mod pick;
mod state;
mod window;

pub use pick::{Ask, Spinner};
pub use state::{Kvm, Module, VcpuExits, VmExits};
