// SPDX-License-Identifier: MIT OR Apache-2.0
//! A PLE exit, and the notes of KVM and the module when a vCPU gets or loses its pCPU.

use super::state::Kvm;
use crate::core::{Cause, Core};
use crate::engine::{PcpuId, VcpuId};
use unspin_policy::hvs;
use unspin_policy::kvm_stock::Variant;

impl Kvm {
    /// The processor has stopped the pause loop of `v`.
    #[inline]
    pub fn ple_exit(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &mut core.vcpus[v];
        vcpu.pauses.spun_ns = 0;
        vcpu.exit.in_ple_exit = true;
        let vm = vcpu.vm;
        let module = &mut self.vms[vm].module;
        module.stats.ple_exits += 1;
        module.stats.wasteful_spin_cycles += u64::from(self.vcpus[v].window_cycles);
        if !module.window_on && !self.window_by_yields(core) {
            let window = self.vcpus[v].window_cycles;
            self.set_window(core, v, core.model.window.grow(self.stock_variant, window));
        }
        self.vcpus[v].complete = false;
    }

    /// Time spent handling the exit of `v`.
    #[inline]
    pub fn charge_exit(&mut self, core: &mut Core, v: VcpuId, cycles: u32) {
        core.charge(v, core.clock.ns(u64::from(cycles)), Cause::Spin);
        self.count_switching(core, v, cycles);
    }

    /// Handling the exit of `v` waits this long for a lock of the host.
    #[inline]
    pub fn charge_wait(&mut self, core: &mut Core, v: VcpuId, ns: u64) {
        if ns > 0 {
            core.charge(v, ns, Cause::Spin);
            self.count_switching(core, v, core.cycles_fast(ns) as u32);
        }
    }

    /// Exits of `v` cost this many cycles, charged elsewhere.
    #[inline]
    pub fn count_switching(&mut self, core: &Core, v: VcpuId, cycles: u32) {
        let module = &mut self.vms[core.vcpus[v].vm].module;
        module.stats.wasteful_switch_cycles += u64::from(cycles);
    }

    /// `v` has left its pCPU although it could run. `displaced`: for the target of a directed
    /// yield. `user`: it was in user mode.
    #[inline]
    pub fn preempted(&mut self, core: &Core, v: VcpuId, displaced: bool, user: bool) {
        let vcpu = &core.vcpus[v];
        let vm = &mut self.vms[vcpu.vm];
        let slot = &mut vm.slots[vcpu.index as usize];
        let flags = vm.module.select.unwrap_or(hvs::Flags::PAPER);
        let mut mark = slot.yielded_mark;
        slot.category =
            hvs::category_on_preempt(vcpu.exit.in_ple_exit, displaced, &mut mark, flags) as u8;
        slot.yielded_mark = mark;
        slot.preempted_at = core.now_ns;
        slot.ready = 1;
        slot.running = 0;
        let user = user || vm.user_mode;
        slot.user_mode = u8::from(user);
        let stock = &mut vm.stock[vcpu.index as usize];
        stock.ready = 1;
        stock.preempted = 1;
        stock.in_kernel = u8::from(!user);
        vm.stops(vcpu.index);
        if self.wastes_switched_out && vcpu.exit.in_ple_exit {
            self.vcpus[v].switched_out_at_ns = Some(core.now_ns);
        }
    }

    /// `v` runs, on `p`.
    #[inline]
    pub fn runs(&mut self, core: &Core, p: PcpuId, v: VcpuId) {
        let vcpu = &core.vcpus[v];
        let vm = &mut self.vms[vcpu.vm];
        let keeps = vm.keeps_lists();
        let slot = &mut vm.slots[vcpu.index as usize];
        if !keeps {
            slot.category = hvs::Category::NotPreempted as u8;
            slot.ready = 0;
        }
        slot.running = 1;
        // It is only compared for equality.
        slot.cpu = p.0 as u16;
        if let Some(waiting) = &mut vm.waiting {
            waiting.runs(vcpu.index as usize);
        }
        let stock = &mut vm.stock[vcpu.index as usize];
        (stock.ready, stock.preempted, stock.blocking, stock.runnable) = (0, 0, 0, 0);
        let kept = &mut self.vcpus[v];
        let pick_pending = std::mem::take(&mut kept.pick_pending);
        if pick_pending && kept.pick_switches + 1 == core.pcpus[p].switches {
            vm.module.stats.picks_ran_next += 1;
        }
        if let Some(since_ns) = kept.switched_out_at_ns.take() {
            vm.module.switched_out_ns += core.now_ns - since_ns;
        }
    }

    /// `v` returns to its guest after it was off its pCPU.
    #[inline]
    pub fn enters(&mut self, core: &mut Core, v: VcpuId) {
        self.end_search(core, v);
        self.window_reset(core, v);
    }

    /// `v` sleeps.
    #[inline]
    pub fn sleeps(&mut self, core: &Core, v: VcpuId) {
        let vcpu = &core.vcpus[v];
        let vm = &mut self.vms[vcpu.vm];
        let keeps = vm.keeps_lists();
        let slot = &mut vm.slots[vcpu.index as usize];
        slot.running = 0;
        if !keeps {
            slot.preempted_at = core.now_ns;
        }
        vm.stock[vcpu.index as usize].blocking = 1;
        vm.stops(vcpu.index);
    }

    /// `v` is parked before it enters its guest. KVM's flags do not show this until it runs again.
    pub fn parks(&mut self, core: &Core, v: VcpuId) {
        let vcpu = &core.vcpus[v];
        let vm = &mut self.vms[vcpu.vm];
        let keeps = vm.keeps_lists();
        let slot = &mut vm.slots[vcpu.index as usize];
        slot.running = 0;
        if !keeps {
            slot.category = hvs::Category::NotPreempted as u8;
            slot.ready = 0;
            slot.preempted_at = core.now_ns;
        }
        let stock = &mut vm.stock[vcpu.index as usize];
        (stock.ready, stock.preempted, stock.blocking, stock.runnable) = (0, 0, 0, 0);
        vm.stops(vcpu.index);
    }

    /// `v`, asleep until now, wants to run.
    #[inline]
    pub fn wakes(&mut self, core: &Core, v: VcpuId) {
        let vcpu = &core.vcpus[v];
        let vm = &mut self.vms[vcpu.vm];
        let keeps = vm.keeps_lists();
        let slot = &mut vm.slots[vcpu.index as usize];
        if !keeps {
            slot.category = hvs::Category::Woken as u8;
            // 3.19 notes preempted vCPUs (kvm_sched_out()); woken ones are noted since 5.3
            // (d73eb57b80b9).
            slot.ready = u8::from(self.stock_variant != Variant::V3_19);
            slot.user_mode = 0;
        }
        let stock = &mut vm.stock[vcpu.index as usize];
        stock.ready = 1;
        stock.runnable = 1;
    }

    /// `v`, new, wants to run.
    pub fn starts(&mut self, core: &Core, v: VcpuId) {
        let vcpu = &core.vcpus[v];
        self.vms[vcpu.vm].stock[vcpu.index as usize].ready = 1;
    }

    /// Sets whether an interrupt that KVM would see is pending for `v`.
    pub fn set_interrupt_pending(&mut self, core: &Core, v: VcpuId, pending: bool) {
        let vcpu = &core.vcpus[v];
        self.vms[vcpu.vm].stock[vcpu.index as usize].interrupt_pending = u8::from(pending);
    }
}
