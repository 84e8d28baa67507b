// SPDX-License-Identifier: MIT OR Apache-2.0
//! Epochs of the module.

use super::state::{Kvm, VmExits};
use crate::core::Core;
use crate::engine::{VcpuId, VmId};
use unspin_policy::aple::Epoch;
use unspin_scenario::result::EpochSample;

impl Kvm {
    pub fn epoch_start(&mut self, core: &Core, vm: VmId) {
        let module = &mut self.vms[vm].module;
        module.epoch_exits = 0;
        module.epoch_min_until_ns = core.now_ns + u64::from(module.params.epoch_min_us) * 1000;
    }

    /// Spent by all vCPUs of `vm` since they started.
    pub fn totals(&self, core: &Core, vm: VmId) -> Epoch {
        let crate::core::Vm { first, vcpus, .. } = core.vms[vm];
        let cpu_ns: u64 = first.and_next(vcpus).map(|v| core.cpu_ns(v)).sum();
        let module = &self.vms[vm].module;
        let stats = &module.stats;
        Epoch {
            ple_exits: stats.ple_exits,
            spin_cycles: stats.wasteful_spin_cycles,
            switch_cycles: stats.wasteful_switch_cycles + core.clock.cycles(module.switched_out_ns),
            cpu_cycles: core.clock.cycles(cpu_ns),
        }
    }

    /// A PLE exit of `v` counts towards its VM's epoch, a batch at a time.
    #[inline]
    pub fn epoch_report(&mut self, core: &Core, v: VcpuId) {
        let vcpu = &mut self.vcpus[v];
        let vm = core.vcpus[v].vm;
        let module = &mut self.vms[vm].module;
        vcpu.unreported_exits += 1;
        if !module.counts || vcpu.unreported_exits < module.report_batch {
            return;
        }
        module.epoch_exits += std::mem::take(&mut vcpu.unreported_exits);
        let enough = module.epoch_exits >= module.params.epoch_ple_exits;
        if enough && core.now_ns >= module.epoch_min_until_ns {
            self.epoch_end(core, vm);
        }
    }

    fn epoch_end(&mut self, core: &Core, vm: VmId) {
        let totals = self.totals(core, vm);
        let now_ns = core.now_ns;
        let VmExits { module, epochs, .. } = &mut self.vms[vm];
        let base = std::mem::replace(&mut module.epoch_base, totals);
        let spent = Epoch {
            ple_exits: totals.ple_exits - base.ple_exits,
            spin_cycles: totals.spin_cycles - base.spin_cycles,
            switch_cycles: totals.switch_cycles - base.switch_cycles,
            cpu_cycles: totals.cpu_cycles - base.cpu_cycles,
        };
        module.stats.epochs += 1;
        let window = if module.window_on {
            let tried = module.aple.window_cycles;
            module.window_cycles = module.aple.epoch_end(&module.params, &spent);
            module.last_ppm = module.aple.last_ppm;
            u64::from(tried)
        } else {
            module.last_ppm = spent.inefficiency_ppm();
            spent.spin_cycles / spent.ple_exits.max(1)
        };
        if self.trace_epochs {
            epochs.push(EpochSample {
                vm: vm.0,
                at_ns: now_ns - self.epoch_from_ns,
                epoch: module.stats.epochs,
                window_cycles: window,
                inefficiency_ppm: module.last_ppm,
            });
        }
        self.epoch_start(core, vm);
    }
}
