// SPDX-License-Identifier: MIT OR Apache-2.0
//! The window of a vCPU's pause loop: KVM's own, or the module's.

use super::state::Kvm;
use crate::core::{Core, Kernel};
use crate::engine::VcpuId;
use unspin_policy::aple;
use unspin_policy::kvm_stock::WINDOW_PAUSES_MAX_SVM;

impl Kvm {
    pub fn window_cycles(&self, v: VcpuId) -> u32 {
        self.vcpus[v].window_cycles
    }

    /// Whether yields change KVM's own window, instead of exits and switches.
    pub fn window_by_yields(&self, core: &Core) -> bool {
        core.model.kernel == Kernel::Proposal2012
    }

    #[inline]
    pub fn set_window(&mut self, core: &mut Core, v: VcpuId, window_cycles: u32) {
        let vcpu = &mut core.vcpus[v];
        self.vcpus[v].window_cycles = window_cycles;
        let looks = self.vms[vcpu.vm].ple
            && core.prices.pause_loop_cycles <= u64::from(core.model.ple_gap_cycles);
        // Intel stops the first PAUSE after the window, AMD the one that decrements the count below
        // zero.
        let turns = match core.model.pause_filter {
            false => u64::from(window_cycles) / core.prices.pause_loop_cycles + 1,
            true => (u64::from(window_cycles) / core.prices.pause_loop_cycles)
                .clamp(1, u64::from(WINDOW_PAUSES_MAX_SVM)),
        };
        vcpu.pauses.window_ns =
            if looks { core.clock.ns(turns * core.prices.pause_loop_cycles) } else { u64::MAX };
    }

    /// An entry into the guest: sets the module's window, if it controls it; a longer one for a
    /// vCPU that spins while no sibling waits for a pCPU.
    #[inline]
    pub fn window_update(&mut self, core: &mut Core, v: VcpuId, ple: bool) {
        let vcpu = &self.vcpus[v];
        let module = &self.vms[core.vcpus[v].vm].module;
        if !module.window_on {
            return;
        }
        let in_force = vcpu.window_cycles;
        let wanted = match (vcpu.complete, ple) {
            (false, _) => module.window_cycles,
            (true, false) => module.window_cycles.max(in_force),
            (true, true) => {
                let kvm_window = core.model.window.base_cycles;
                module.window_cycles.max(aple::window_complete(
                    &module.params,
                    in_force,
                    kvm_window,
                ))
            }
        };
        if wanted != in_force {
            self.set_window(core, v, wanted);
        }
    }

    /// `v` is loaded after having been scheduled out.
    #[inline]
    pub fn window_reset(&mut self, core: &mut Core, v: VcpuId) {
        self.vcpus[v].complete = false;
        let vcpu = &self.vcpus[v];
        let module = &self.vms[core.vcpus[v].vm].module;
        let window_cycles = if module.window_on {
            module.window_cycles
        } else if self.window_by_yields(core) {
            return;
        } else {
            core.model.window.shrink(self.stock_variant, vcpu.window_cycles)
        };
        if vcpu.window_cycles != window_cycles {
            self.set_window(core, v, window_cycles);
        }
    }
}
