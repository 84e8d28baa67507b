// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of KVM and the module.

use crate::engine::{PcpuId, Table, VcpuId, VmId};
use unspin_policy::aple;
use unspin_policy::hvs;
use unspin_policy::kvm_stock::{Search, Variant, Vcpu as StockVcpu};
use unspin_scenario::result::{EpochSample, ModuleStats};
use unspin_uapi::Coscheduling;

/// The module's view of one VM.
#[derive(Debug, Clone)]
pub struct Module {
    /// In mode `off` nothing is counted.
    pub counts: bool,
    pub window_on: bool,
    /// The host also knows which vCPU has the spinner's lock, or is next for it.
    pub queue_aware: bool,
    /// When its vCPUs run together, in turns of this length.
    pub coscheduling: Coscheduling,
    pub turn_us: u32,
    /// Its selection, or KVM's.
    pub select: Option<hvs::Flags>,
    pub params: aple::Params,
    pub aple: aple::State,
    pub window_cycles: u32,
    pub report_batch: u32,
    pub epoch_exits: u32,
    pub epoch_min_until_ns: u64,
    pub epoch_base: aple::Epoch,
    pub last_ppm: u64,
    /// Time for which vCPUs were switched out in PLE exits, if that counts as waste.
    pub switched_out_ns: u64,
    pub stats: ModuleStats,
}

impl Module {
    /// Whether it does more than count.
    pub fn acts(&self) -> bool {
        self.window_on || self.select.is_some()
    }
}

/// The state of KVM and the module for a vCPU.
#[derive(Debug, Clone, Default)]
pub struct VcpuExits {
    /// Its window in force, cycles.
    pub window_cycles: u32,
    /// Its last PLE exit found no sibling without a pCPU.
    pub complete: bool,
    pub search: Option<Search>,
    /// A directed yield of the module was for it on this pCPU, whose switch count was then this.
    pub pick_pending: bool,
    pub pick_pcpu: PcpuId,
    pub pick_switches: u64,
    pub unreported_exits: u32,
    /// When it was switched out in a PLE exit from which it has not returned.
    pub switched_out_at_ns: Option<u64>,
}

/// The state of KVM and the module for a VM.
#[derive(Debug, Clone)]
pub struct VmExits {
    /// A processor loop detector watches it.
    pub ple: bool,
    /// It runs at CPL 3.
    pub user_mode: bool,
    pub last_boosted: u32,
    pub stock: Vec<StockVcpu>,
    pub slots: Vec<hvs::Slot>,
    /// For a VM of more vCPUs than the module's snapshot has slots.
    pub waiting: Option<Box<hvs::Waiting>>,
    pub module: Module,
    pub epochs: Vec<EpochSample>,
}

impl VmExits {
    /// Whether a vCPU stays on its list until it is picked or preempted again.
    #[inline]
    pub fn keeps_lists(&self) -> bool {
        let is_small = self.waiting.is_none();
        is_small && self.module.select.is_some_and(|flags| flags.has(hvs::Flags::TRUE_LISTS))
    }

    /// `vcpu` has no pCPU any more, and its slot has the reason.
    #[inline]
    pub fn stops(&mut self, vcpu: u32) {
        if let Some(waiting) = &mut self.waiting {
            let why = hvs::Category::from_number(self.slots[vcpu as usize].category);
            waiting.stops(vcpu as usize, why.unwrap_or_default());
        }
    }
}

/// KVM, and the module in it.
pub struct Kvm {
    pub vcpus: Table<VcpuId, VcpuExits>,
    pub vms: Table<VmId, VmExits>,
    pub stock_variant: Variant,
    pub trace_epochs: bool,
    pub epoch_from_ns: u64,
    /// For VMs whose spinners' targets are known: since when each ready vCPU has had no pCPU.
    pub seen: Vec<Option<u64>>,
    /// APLE's waste includes time switched out in a PLE exit.
    pub wastes_switched_out: bool,
}
