// SPDX-License-Identifier: MIT OR Apache-2.0
//! The target of a PLE exit's yield: first vCPUs for which the spinner waits, if the host knows
//! them, then the module's selection or KVM's.

use super::state::{Kvm, VmExits};
use crate::core::{Core, State};
use crate::engine::{PcpuId, VcpuId};
use std::collections::BTreeSet;
use unspin_policy::hvs::{self, Category, Decision};
use unspin_policy::kvm_stock::{Search, Variant, Yield};

/// As kvm_vcpu_on_spin() and HVS_TRIES: number of yields that may fail.
const YIELD_TRIES: u32 = 3;

/// Whether a vCPU spins for a lock, and whether in user mode.
#[derive(Debug, Clone, Copy)]
pub struct Spinner {
    pub for_lock: bool,
    pub in_user: bool,
}

/// The module's snapshot of a VM that is larger than it: which of the considered vCPUs are ready.
pub struct Looked {
    look: hvs::Look,
    numbers: Vec<usize>,
    slots: Vec<hvs::Slot>,
}

impl Looked {
    /// The slot of a vCPU in the snapshot.
    fn slot_of(looked: Option<&Looked>, number: usize) -> usize {
        looked.map_or(number, |looked| {
            looked.numbers.iter().position(|&n| n == number).expect("who was picked was looked at")
        })
    }
}

/// A pick under way.
pub enum Pick {
    /// First vCPUs for which the spinner waits, then the module's or KVM's selection.
    Awaited { excluded: u64, tries: u32, spinner: Spinner },
    Selected {
        flags: hvs::Flags,
        looked: Option<Box<Looked>>,
        excluded: u64,
        tries: u32,
        mark: u8,
        /// Of the vCPU that was picked last.
        category: u8,
    },
    /// `begin`: where KVM's search begins.
    Stock { search: Search, last: u32, begin: u32 },
}

/// The next action of a pick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Let this vCPU run instead of the one that spins.
    YieldTo(VcpuId),
    /// Let any other task run.
    GiveWay,
    Nobody,
}

impl Kvm {
    /// Begins to choose the target of the PLE exit of `v`. `awaits`: whether it waits for that vCPU
    /// of its VM.
    #[inline]
    pub fn begin_pick(
        &mut self,
        core: &mut Core,
        v: VcpuId,
        spinner: Spinner,
        awaits: impl Fn(&Core, VcpuId) -> bool,
    ) -> Pick {
        core.vcpus[v].exit.undecided = false;
        core.vcpus[v].exit.in_ple_exit = true;
        let select = self.selection(core, v);
        let costs = &core.model.costs;
        let cycles =
            if select.is_some() { costs.ple_exit_selected_cycles } else { costs.ple_exit_cycles };
        let cycles = cycles.saturating_sub(costs.decide_cycles);
        self.charge_exit(core, v, cycles);
        self.epoch_report(core, v);
        let module = &self.vms[core.vcpus[v].vm].module;
        if !(module.queue_aware && spinner.for_lock && self.fits(core, v)) {
            return self.begin_selection(core, v, spinner);
        }
        self.see_awaited(core, v, awaits);
        Pick::Awaited { excluded: 0, tries: YIELD_TRIES, spinner }
    }

    /// As in the module: vCPUs for which the spinner waits are considered if the snapshot has slots
    /// for all.
    #[inline]
    fn fits(&self, core: &Core, v: VcpuId) -> bool {
        core.vms[core.vcpus[v].vm].vcpus as usize <= hvs::SLOTS_MAX
    }

    #[inline]
    fn selection(&self, core: &Core, v: VcpuId) -> Option<hvs::Flags> {
        let vm = core.vcpus[v].vm;
        self.vms[vm].module.select.filter(|_| core.vms[vm].vcpus as usize <= hvs::VCPUS_MAX)
    }

    #[inline]
    fn begin_selection(&mut self, core: &Core, v: VcpuId, spinner: Spinner) -> Pick {
        match self.selection(core, v) {
            Some(flags) => {
                let looked = self.look(core, v, flags);
                Pick::Selected {
                    flags,
                    looked,
                    excluded: 0,
                    tries: YIELD_TRIES,
                    mark: 0,
                    category: 0,
                }
            }
            None => self.begin_stock(core, v, spinner),
        }
    }

    /// As kmod/pick.c: which vCPUs `v` considers in a VM that is larger than a snapshot.
    fn look(&mut self, core: &Core, v: VcpuId, flags: hvs::Flags) -> Option<Box<Looked>> {
        let vm = core.vcpus[v].vm;
        let VmExits { waiting, slots, .. } = &mut self.vms[vm];
        let look = waiting.as_mut()?.look(slots.len(), core.vcpus[v].index as usize, flags);
        let numbers: Vec<usize> = look
            .numbers()
            .filter(|&n| slots[n].ready != 0 && slots[n].category != 0)
            .take(hvs::SLOTS_MAX)
            .collect();
        let ours: BTreeSet<u16> = slots.iter().filter(|s| s.running != 0).map(|s| s.cpu).collect();
        let seen =
            |&n: &usize| hvs::Slot { shared: ours.contains(&slots[n].cpu).into(), ..slots[n] };
        let slots = numbers.iter().map(seen).collect();
        Some(Box::new(Looked { look, numbers, slots }))
    }

    #[inline]
    fn begin_stock(&mut self, core: &Core, v: VcpuId, spinner: Spinner) -> Pick {
        let vcpu = &core.vcpus[v];
        let index = vcpu.index as usize;
        let VmExits { stock, last_boosted, user_mode, .. } = &mut self.vms[vcpu.vm];
        // Since 4.14 a vCPU that spins in kernel mode passes those over that were in user mode.
        let in_kernel = !(spinner.in_user || *user_mode);
        let kernel_only = in_kernel && self.stock_variant != Variant::V3_19;
        let last = *last_boosted;
        let search = Search::start(stock, index, last, self.stock_variant, kernel_only);
        // KVM goes round the VM, from the vCPU after the last boosted one to that one itself.
        Pick::Stock { search, last, begin: last + 1 }
    }

    /// The longest preempted vCPU among those for which the spinner waits and that are ready,
    /// searching from the one after `index`.
    fn longest_awaited(&self, index: usize, excluded: u64) -> Option<usize> {
        let count = self.seen.len();
        let others = (1..count).map(|step| (index + step) % count);
        let may = others.filter(|&u| excluded >> u & 1 == 0);
        may.filter_map(|u| Some((self.seen[u]?, u))).min_by_key(|(since, _)| *since).map(|(_, u)| u)
    }

    fn see_awaited(&mut self, core: &Core, v: VcpuId, awaits: impl Fn(&Core, VcpuId) -> bool) {
        let vm = core.vcpus[v].vm;
        self.seen.clear();
        let slots = &self.vms[vm].slots;
        for (u, slot) in core.vms[vm].first.and_all().zip(slots) {
            let ready = core.vcpus[u].on.state == State::Ready;
            self.seen.push((ready && awaits(core, u)).then_some(slot.preempted_at));
        }
    }

    /// The next vCPU that the exit of `v` wants to yield to.
    #[inline]
    pub fn next_pick(&mut self, core: &mut Core, v: VcpuId, pick: &mut Pick) -> Ask {
        let (vm, index) = (core.vcpus[v].vm, core.vcpus[v].index as usize);
        if let Pick::Awaited { excluded, tries, spinner } = pick {
            let target = if *tries > 0 { self.longest_awaited(index, *excluded) } else { None };
            match target {
                Some(target) => return self.ask(core, v, target),
                None => *pick = self.begin_selection(core, v, *spinner),
            }
        }
        match pick {
            Pick::Awaited { .. } => Ask::Nobody,
            Pick::Selected { flags, looked, excluded, tries, mark, category } => {
                // The module takes one snapshot. Meanwhile only marks change here, which it does
                // not read.
                let decided = match *tries {
                    0 => Decision::Nobody,
                    _ => match looked {
                        None => hvs::decide(&self.vms[vm].slots, index, *excluded, *flags),
                        Some(of) => hvs::decide_looked(&of.slots, &of.look, *excluded, *flags),
                    },
                };
                let keeps = self.vms[vm].keeps_lists();
                let VmExits { slots, module, .. } = &mut self.vms[vm];
                match decided {
                    Decision::GiveWay => {
                        module.stats.yields_gave_way += 1;
                        return Ask::GiveWay;
                    }
                    Decision::Vcpu(slot) => {
                        let target = looked.as_ref().map_or(slot, |of| of.numbers[slot]);
                        *mark = std::mem::replace(&mut slots[target].yielded_mark, 1);
                        *category = slots[target].category;
                        if keeps {
                            slots[target].category = Category::NotPreempted as u8;
                        }
                        return self.ask(core, v, target);
                    }
                    Decision::Complete => self.vcpus[v].complete = true,
                    Decision::Nobody => {}
                }
                module.stats.yields_none += 1;
                Ask::Nobody
            }
            Pick::Stock { search, .. } => match search.next(&mut self.vms[vm].stock) {
                Some(target) => self.ask(core, v, target),
                None => Ask::Nobody,
            },
        }
    }

    #[inline]
    fn ask(&mut self, core: &mut Core, v: VcpuId, target: usize) -> Ask {
        self.charge_exit(core, v, core.model.costs.yield_cycles);
        Ask::YieldTo(core.vms[core.vcpus[v].vm].first + target as u32)
    }

    /// The result of the yield to `target`. Returns whether to try another one.
    #[inline]
    pub fn tries_another(
        &mut self,
        core: &Core,
        v: VcpuId,
        pick: &mut Pick,
        target: VcpuId,
        outcome: Yield,
    ) -> bool {
        let number = core.vcpus[target].index as usize;
        match pick {
            Pick::Awaited { .. } if outcome == Yield::Boosted => {
                let slots = &self.vms[core.vcpus[v].vm].slots;
                self.boosted(core, v, number, slots[number].category);
            }
            Pick::Awaited { excluded, tries, .. } => {
                *excluded |= 1 << number;
                *tries -= 1;
            }
            Pick::Selected { category, .. } if outcome == Yield::Boosted => {
                self.boosted(core, v, number, *category);
            }
            Pick::Selected { flags, looked, excluded, tries, mark, .. } => {
                let VmExits { slots, module, .. } = &mut self.vms[core.vcpus[v].vm];
                module.stats.yields_failed += 1;
                if !flags.has(hvs::Flags::RETRY) {
                    *tries = 0;
                } else {
                    slots[number].yielded_mark = *mark;
                    *excluded |= 1 << Looked::slot_of(looked.as_deref(), number);
                    *tries -= u32::from(outcome == Yield::Failed);
                }
            }
            Pick::Stock { search, last, .. } => search.result(last, outcome),
        }
        outcome != Yield::Boosted
    }

    /// The pick is over. `boosted`: the vCPU that was yielded to.
    #[inline]
    pub fn end_pick(&mut self, core: &mut Core, v: VcpuId, pick: Pick, boosted: Option<VcpuId>) {
        let Pick::Stock { search, last, begin } = pick else { return };
        let vm = core.vcpus[v].vm;
        let count = core.vms[vm].vcpus;
        let looked =
            boosted.map_or(count, |u| (core.vcpus[u].index + count - begin % count) % count);
        self.charge_exit(core, v, core.model.costs.search_cycles * (looked + 1));
        self.vms[vm].last_boosted = last;
        if self.window_by_yields(core) && !self.vms[vm].module.window_on {
            let (window, params) = (self.vcpus[v].window_cycles, core.model.window);
            let next = match boosted {
                Some(_) => params.shrink(self.stock_variant, window),
                None => params.grow(self.stock_variant, window),
            };
            self.set_window(core, v, next);
        }
        // KVM's function returns only when the vCPU runs again.
        self.vcpus[v].search = Some(search);
        if boosted.is_none() {
            self.end_search(core, v);
        }
    }

    /// `v` returns to its guest: for KVM it no longer spins.
    #[inline]
    pub fn end_search(&mut self, core: &Core, v: VcpuId) {
        if let Some(search) = self.vcpus[v].search.take() {
            search.finish(&mut self.vms[core.vcpus[v].vm].stock);
        }
    }

    /// `v` has yielded to number `target` of its VM, which was in this category.
    fn boosted(&mut self, core: &Core, v: VcpuId, target: usize, category: u8) {
        let vm = core.vcpus[v].vm;
        self.note_pick(core, core.vms[vm].first + target as u32);
        let VmExits { last_boosted, module, slots, .. } = &mut self.vms[vm];
        *last_boosted = target as u32;
        slots[target].yielded_mark = 1;
        let stats = &mut module.stats;
        match Category::from_number(category) {
            Some(Category::ResourceWaiter) => stats.yields_resource_waiter += 1,
            Some(Category::LockWaiter) => stats.yields_lock_waiter += 1,
            Some(Category::Yielded) => stats.yields_yielded += 1,
            Some(Category::Woken) => stats.yields_woken += 1,
            // The lock's holder is chosen directly: it may have just started, and never run.
            Some(Category::NotPreempted) | None => {}
        }
    }

    fn note_pick(&mut self, core: &Core, target: VcpuId) {
        let pcpu = core.vcpus[target].on.pcpu;
        let kept = &mut self.vcpus[target];
        kept.pick_pending = true;
        kept.pick_pcpu = pcpu;
        kept.pick_switches = core.pcpus[pcpu].switches;
    }

    /// Whether a directed yield of the module was for `v`, on `p`, and it has not run since.
    #[inline]
    pub fn is_picked_on(&self, v: VcpuId, p: PcpuId) -> bool {
        let kept = &self.vcpus[v];
        kept.pick_pending && kept.pick_pcpu == p
    }
}
