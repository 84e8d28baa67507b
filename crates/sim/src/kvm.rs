// SPDX-License-Identifier: MIT OR Apache-2.0
//! KVM and the module on a PLE exit: windows, selection, yield_to(), accounting.
//!
//! Every decision is one of `policy/`; here are only the effects (kmod/pick.c, kmod/account.c,
//! `kvm_vcpu_on_spin` and `yield_to` of the kernel).

use crate::engine::{PcpuId, VcpuId, VmId};
use crate::host::Kernel;
use crate::machine::Sim;
use crate::state::{Cause, Doing, State, Vm};
use unspin_policy::aple::{self, Epoch};
use unspin_policy::hvs::{self, Category, Decision};
use unspin_policy::ipi;
use unspin_policy::kvm_stock::{Search, Variant, Yield, WINDOW_PAUSES_MAX_SVM};
use unspin_scenario::result::EpochSample;

/// As kvm_vcpu_on_spin() and kmod/pick.c: yields that found nothing to gain.
const YIELD_TRIES: u32 = 3;

impl Sim {
    /// The processor has stopped the pause loop of `v` on `p`.
    pub(crate) fn ple_exit(&mut self, p: PcpuId, v: VcpuId) {
        let vm = self.vcpus[v].vm;
        let costs = self.host.costs;
        let vcpu = &mut self.vcpus[v];
        vcpu.spun_ns = 0;
        vcpu.in_ple_exit = true;
        let module = &mut self.vms[vm].module;
        module.stats.ple_exits += 1;
        module.stats.wasteful_spin_cycles += u64::from(vcpu.window_cycles);
        if !self.vms[vm].module.window_on && !self.window_by_yields() {
            let window = self.vcpus[v].window_cycles;
            self.set_window(v, self.host.window.grow(self.stock, window));
        }
        self.vcpus[v].complete = false;
        if self.credit.is_some() {
            // Xen of that time yields to nobody.
            self.charge_exit(v, costs.ple_exit_cycles);
            self.epoch_report(v);
            self.watch_ple_exit(v);
            self.window_update(v, true);
        } else if costs.decide_cycles > 0 {
            self.charge_exit(v, costs.decide_cycles);
            self.vcpus[v].undecided = true;
        } else {
            self.decide(p, v);
        }
    }

    /// Whom the PLE exit of `v` on `p` yields to, as things are now.
    pub(crate) fn decide(&mut self, p: PcpuId, v: VcpuId) {
        let vcpu = &mut self.vcpus[v];
        vcpu.undecided = false;
        vcpu.in_ple_exit = true;
        let vm = vcpu.vm;
        let costs = self.host.costs;
        // As the module: its snapshot has no more slots.
        let fits = self.vms[vm].vcpus as usize <= hvs::SLOTS_MAX;
        let select = self.vms[vm].module.select.filter(|_| fits);
        let selected = select.is_some();
        let cycles = if selected { costs.ple_exit_selected_cycles } else { costs.ple_exit_cycles };
        self.charge_exit(v, cycles.saturating_sub(costs.decide_cycles));
        self.epoch_report(v);
        let to_awaited =
            fits && self.knows_awaited(v) && !self.gives_way(v, select) && self.yield_awaited(p, v);
        match select {
            _ if to_awaited => {}
            Some(flags) => self.yield_selected(p, v, flags),
            None => self.yield_stock(p, v),
        }
        if self.vcpus[v].state == State::Running {
            self.window_update(v, true);
        }
    }

    /// Time spent handling the exit of `v`.
    fn charge_exit(&mut self, v: VcpuId, cycles: u32) {
        self.charge(v, self.clock.ns(u64::from(cycles)), Cause::Spin);
        let vm = &mut self.vms[self.vcpus[v].vm];
        vm.module.stats.wasteful_switch_cycles += u64::from(cycles);
    }

    fn yield_stock(&mut self, p: PcpuId, v: VcpuId) {
        let vcpu = &self.vcpus[v];
        let (vm, index) = (vcpu.vm, vcpu.index as usize);
        // Since 4.14 a vCPU that spins in kernel mode passes those over that were in user mode.
        let in_kernel = !(vcpu.user || self.vms[vm].user_mode);
        let kernel_only = in_kernel && self.stock != Variant::V3_19;
        let Vm { stock, last_boosted, first, vcpus: count, .. } = &mut self.vms[vm];
        let (first, count, mut last) = (*first, *count, *last_boosted);
        // Round the VM from the one after the last boosted to that one itself.
        let mut looked = count;
        let begin = last + 1;
        let mut search = Search::start(stock, index, last, self.stock, kernel_only);
        let mut boosted = false;
        while let Some(target) = search.next(&mut self.vms[vm].stock) {
            let outcome = self.yield_to(p, v, first + target as u32);
            search.result(&mut last, outcome);
            boosted = outcome == Yield::Boosted;
            if boosted {
                looked = (target as u32 + count - begin % count) % count;
            }
        }
        self.charge_exit(v, self.host.costs.search_cycles * (looked + 1));
        self.vms[vm].last_boosted = last;
        if self.window_by_yields() && !self.vms[vm].module.window_on {
            let (window, params) = (self.vcpus[v].window_cycles, self.host.window);
            let next = match boosted {
                true => params.shrink(self.stock, window),
                false => params.grow(self.stock, window),
            };
            self.set_window(v, next);
        }
        // KVM's function returns only when the vCPU runs again.
        self.vcpus[v].search = Some(search);
        if boosted {
            self.leave(p, v);
        } else {
            self.end_search(v);
        }
    }

    /// `v` goes back to its guest: it spins no longer as far as KVM knows.
    pub(crate) fn end_search(&mut self, v: VcpuId) {
        if let Some(search) = self.vcpus[v].search.take() {
            let vm = self.vcpus[v].vm;
            search.finish(&mut self.vms[vm].stock);
        }
    }

    fn yield_selected(&mut self, p: PcpuId, v: VcpuId, flags: hvs::Flags) {
        let vcpu = &self.vcpus[v];
        let (vm, index) = (vcpu.vm, vcpu.index as usize);
        let first = self.vms[vm].first;
        let mut excluded = 0;
        let mut tries = YIELD_TRIES;
        // The module takes one snapshot; nothing changes here meanwhile but marks, which it
        // does not look at.
        while tries > 0 {
            let target = match hvs::decide(&self.vms[vm].slots, index, excluded, flags) {
                Decision::GiveWay => {
                    self.vms[vm].module.stats.yields_gave_way += 1;
                    self.bill(p);
                    self.queues[p].yield_current(&self.tunables, &mut self.entities);
                    self.leave(p, v);
                    return;
                }
                Decision::Nobody => break,
                Decision::Complete => {
                    self.vcpus[v].complete = true;
                    break;
                }
                Decision::Vcpu(target) => target,
            };
            let slot = &mut self.vms[vm].slots[target];
            let marked = std::mem::replace(&mut slot.yielded_mark, 1);
            match self.yield_to(p, v, first + target as u32) {
                Yield::Boosted => {
                    self.boosted(p, v, target, false);
                    return;
                }
                outcome => {
                    let Vm { slots, module, .. } = &mut self.vms[vm];
                    slots[target].yielded_mark = marked;
                    module.stats.yields_failed += 1;
                    excluded |= 1 << target;
                    tries -= u32::from(outcome == Yield::Failed);
                }
            }
        }
        self.vms[vm].module.stats.yields_none += 1;
    }

    /// Whether `v`, which waits for answers, is below its VM's quorum: then answers come no sooner for a
    /// core given to one sibling that another had.
    fn gives_way(&self, v: VcpuId, select: Option<hvs::Flags>) -> bool {
        let vcpu = &self.vcpus[v];
        let slots = &self.vms[vcpu.vm].slots;
        let decided = |flags| hvs::decide(slots, vcpu.index as usize, 0, flags);
        vcpu.doing == Doing::SpinAck && select.map(decided) == Some(Decision::GiveWay)
    }

    /// Whether the host knows whom `v` waits for.
    fn knows_awaited(&self, v: VcpuId) -> bool {
        let vcpu = &self.vcpus[v];
        let module = &self.vms[vcpu.vm].module;
        match vcpu.doing {
            Doing::SpinAck => module.ipi_aware,
            Doing::SpinLock => module.queue_aware,
            _ => false,
        }
    }

    /// Whether `v` waits for `u`, of the same VM.
    fn awaits(&self, v: VcpuId, u: VcpuId) -> bool {
        let (vcpu, other) = (&self.vcpus[v], &self.vcpus[u]);
        match vcpu.doing {
            Doing::SpinAck => {
                let acks = &self.vms[vcpu.vm].acks;
                acks.get(other.index as usize).is_some_and(|a| a.contains(&vcpu.index))
            }
            // Who has the lock, or is next for it.
            Doing::SpinLock => other.owned & 1 << (vcpu.wait.lock.0 % self.locks_per_vm) != 0,
            _ => false,
        }
    }

    /// Yields to a vCPU that `v` waits for. Whether it did.
    fn yield_awaited(&mut self, p: PcpuId, v: VcpuId) -> bool {
        let vcpu = &self.vcpus[v];
        let (vm, index) = (vcpu.vm, vcpu.index as usize);
        let Vm { first, vcpus, slots, .. } = &self.vms[vm];
        let first = *first;
        let mut seen = [ipi::Slot::default(); ipi::SLOTS_MAX];
        for (u, (seen, slot)) in first.and_all().zip(seen.iter_mut().zip(slots)) {
            seen.preempted_at = slot.preempted_at;
            seen.ready = u8::from(self.vcpus[u].state == State::Ready);
            seen.owes_answer = u8::from(self.awaits(v, u));
        }
        let seen = &seen[..*vcpus as usize];
        let mut excluded = 0;
        for _ in 0..YIELD_TRIES {
            let Some(target) = ipi::pick(seen, index, excluded) else { return false };
            if self.yield_to(p, v, first + target as u32) == Yield::Boosted {
                let owes_answer = self.vcpus[v].doing == Doing::SpinAck;
                self.boosted(p, v, target, owes_answer);
                return true;
            }
            excluded |= 1 << target;
        }
        false
    }

    /// `v` has yielded to number `target` of its VM, which owes it an answer, or was selected.
    fn boosted(&mut self, p: PcpuId, v: VcpuId, target: usize, owes_answer: bool) {
        let vm = self.vcpus[v].vm;
        self.note_pick(self.vms[vm].first + target as u32);
        let Vm { last_boosted, module, slots, .. } = &mut self.vms[vm];
        *last_boosted = target as u32;
        slots[target].yielded_mark = 1;
        let stats = &mut module.stats;
        match Category::from_number(slots[target].category) {
            _ if owes_answer => stats.yields_ipi_receiver += 1,
            Some(Category::ResourceWaiter) => stats.yields_resource_waiter += 1,
            Some(Category::LockWaiter) => stats.yields_lock_waiter += 1,
            Some(Category::Yielded) => stats.yields_yielded += 1,
            Some(Category::Woken) => stats.yields_woken += 1,
            // Who has the lock is asked for by name: it may have just started, and never run.
            Some(Category::NotPreempted) | None => {}
        }
        self.leave(p, v);
    }

    fn note_pick(&mut self, target: VcpuId) {
        let vcpu = &mut self.vcpus[target];
        vcpu.pick_pending = true;
        vcpu.pick_pcpu = vcpu.pcpu;
        vcpu.pick_switches = self.pcpus[vcpu.pcpu].switches;
    }

    /// yield_to(): `v`, running on `p`, wants `target` to run in its place.
    fn yield_to(&mut self, p: PcpuId, v: VcpuId, target: VcpuId) -> Yield {
        self.charge_exit(v, self.host.costs.yield_cycles);
        let to = self.vcpus[target].pcpu;
        if self.queues[p].tasks() == 1 && self.queues[to].tasks() == 1 {
            return Yield::Failed;
        }
        if self.vcpus[target].state != State::Ready || self.is_throttled(target) {
            return Yield::NotPossible;
        }
        self.bill(p);
        self.queues[to].set_next(target);
        self.queues[p].yield_current(&self.tunables, &mut self.entities);
        if to != p {
            self.ask_reschedule(to);
        }
        Yield::Boosted
    }

    /// schedule() inside the exit of `v`; if nobody else is to run, `v` goes on.
    fn leave(&mut self, p: PcpuId, v: VcpuId) {
        self.schedule(p);
        if self.queues[p].current == v {
            self.end_search(v);
        } else {
            // The way back is part of handling the exit.
            let cycles = u64::from(self.host.costs.switch_cycles);
            let vm = self.vcpus[v].vm;
            self.vms[vm].module.stats.wasteful_switch_cycles += cycles;
        }
    }

    /// Whether yields change KVM's own window, not exits and switches.
    fn window_by_yields(&self) -> bool {
        self.host.kernel == Kernel::Proposal2012
    }

    pub(crate) fn set_window(&mut self, v: VcpuId, window_cycles: u32) {
        let vcpu = &mut self.vcpus[v];
        vcpu.window_cycles = window_cycles;
        let looks =
            self.vms[vcpu.vm].ple && self.pause_loop_cycles <= u64::from(self.host.ple_gap_cycles);
        // Intel stops the first PAUSE later than the window, AMD the one that counts down to zero.
        let turns = match self.host.pause_filter {
            false => u64::from(window_cycles) / self.pause_loop_cycles + 1,
            true => (u64::from(window_cycles) / self.pause_loop_cycles)
                .clamp(1, u64::from(WINDOW_PAUSES_MAX_SVM)),
        };
        vcpu.window_ns =
            if looks { self.clock.ns(turns * self.pause_loop_cycles) } else { u64::MAX };
    }

    /// An entry, after a PLE exit or another: the module's window, where it sets one; longer for a
    /// vCPU that spins while no sibling is missing.
    pub(crate) fn window_update(&mut self, v: VcpuId, ple: bool) {
        let vcpu = &self.vcpus[v];
        let module = &self.vms[vcpu.vm].module;
        if !module.window_on {
            return;
        }
        let in_force = vcpu.window_cycles;
        let wanted = match (vcpu.complete, ple) {
            (false, _) => module.window_cycles,
            (true, false) => module.window_cycles.max(in_force),
            (true, true) => {
                module.window_cycles.max(aple::window_complete(&module.params, in_force))
            }
        };
        if wanted != in_force {
            self.set_window(v, wanted);
        }
    }

    /// `v` is loaded after having been scheduled out.
    pub(crate) fn window_reset(&mut self, v: VcpuId) {
        self.vcpus[v].complete = false;
        let vcpu = &self.vcpus[v];
        let module = &self.vms[vcpu.vm].module;
        let window_cycles = if module.window_on {
            module.window_cycles
        } else if self.window_by_yields() {
            return;
        } else {
            self.host.window.shrink(self.stock, vcpu.window_cycles)
        };
        if vcpu.window_cycles != window_cycles {
            self.set_window(v, window_cycles);
        }
    }

    pub(crate) fn epoch_start(&mut self, vm: VmId) {
        let module = &mut self.vms[vm].module;
        module.epoch_exits = 0;
        module.epoch_min_until_ns = self.now_ns + u64::from(module.params.epoch_min_us) * 1000;
    }

    /// Spent by all vCPUs of `vm` since they started.
    pub(crate) fn totals(&self, vm: VmId) -> Epoch {
        let vm = &self.vms[vm];
        let cpu_ns: u64 = vm
            .first
            .and_next(vm.vcpus)
            .map(|v| {
                let vcpu = &self.vcpus[v];
                let runs = vcpu.state == State::Running;
                vcpu.cpu_ns() + if runs { self.now_ns - vcpu.since_ns } else { 0 }
            })
            .sum();
        let stats = &vm.module.stats;
        Epoch {
            ple_exits: stats.ple_exits,
            spin_cycles: stats.wasteful_spin_cycles,
            switch_cycles: stats.wasteful_switch_cycles,
            cpu_cycles: self.clock.cycles(cpu_ns),
        }
    }

    /// A PLE exit of `v` counts towards its VM's epoch, a batch at a time.
    fn epoch_report(&mut self, v: VcpuId) {
        let vcpu = &mut self.vcpus[v];
        let vm = vcpu.vm;
        let module = &mut self.vms[vm].module;
        vcpu.unreported_exits += 1;
        if !module.counts || vcpu.unreported_exits < module.report_batch {
            return;
        }
        module.epoch_exits += std::mem::take(&mut vcpu.unreported_exits);
        let enough = module.epoch_exits >= module.params.epoch_ple_exits;
        if enough && self.now_ns >= module.epoch_min_until_ns {
            self.epoch_end(vm);
        }
    }

    fn epoch_end(&mut self, vm: VmId) {
        let totals = self.totals(vm);
        let now_ns = self.now_ns;
        let Vm { module, epochs, .. } = &mut self.vms[vm];
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
        self.epoch_start(vm);
    }
}
