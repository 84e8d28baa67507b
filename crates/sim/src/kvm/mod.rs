// SPDX-License-Identifier: MIT OR Apache-2.0
//! KVM and the module on a PLE exit: windows, selection, accounting.
//!
//! Every decision is one of `policy/`; here is what it is told and what follows (kmod/pick.c,
//! kmod/account.c, `kvm_vcpu_on_spin` of the kernel). Whether a yield succeeds is the scheduler's
//! business: `pick` asks for one after the other, and hears what came of it.

mod exit;
mod module;
mod pick;
mod window;

pub use module::Module;
pub use pick::{Ask, Spinner, WaitsFor};

use crate::engine::{PcpuId, Table, VcpuId, VmId};
use unspin_policy::kvm_stock::{Search, Variant, Vcpu as StockVcpu};
use unspin_policy::{hvs, ipi};
use unspin_scenario::result::EpochSample;

/// What KVM and the module keep of a vCPU.
#[derive(Debug, Clone)]
pub struct VcpuExits {
    /// Its window in force, cycles.
    pub window_cycles: u32,
    /// Its last PLE exit found no sibling without a pCPU.
    pub complete: bool,
    pub search: Option<Search>,
    /// A directed yield of the module was for it, there, when the pCPU had switched so often.
    pub pick_pending: bool,
    pub pick_pcpu: PcpuId,
    pub pick_switches: u64,
    pub unreported_exits: u32,
}

impl VcpuExits {
    pub const NEW: VcpuExits = VcpuExits {
        window_cycles: 0,
        complete: false,
        search: None,
        pick_pending: false,
        pick_pcpu: PcpuId::NONE,
        pick_switches: 0,
        unreported_exits: 0,
    };
}

/// What KVM and the module keep of a VM.
#[derive(Debug, Clone)]
pub struct VmExits {
    /// A processor loop detector watches it.
    pub ple: bool,
    /// It runs at CPL 3.
    pub user_mode: bool,
    pub last_boosted: u32,
    pub stock: Vec<StockVcpu>,
    pub slots: Vec<hvs::Slot>,
    pub module: Module,
    pub epochs: Vec<EpochSample>,
}

/// KVM, and the module in it.
pub struct Kvm {
    pub vcpus: Table<VcpuId, VcpuExits>,
    pub vms: Table<VmId, VmExits>,
    pub stock_variant: Variant,
    pub trace_epochs: bool,
    pub epoch_from_ns: u64,
    /// What yields to those that are waited for are told.
    pub seen: Vec<ipi::Slot>,
}
