// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which vCPU runs under Credit, and when it chooses again.

use super::super::ask::{arm_tick_by, ask_reschedule};
use super::super::fair::{Queues, NONE};
use super::state::Credit;
use crate::core::{Cause, Core, State};
use crate::engine::{Event, PcpuId, VcpuId, VmId};

use unspin_policy::credit::Vcpu;
use unspin_scenario::plan::Coscheduling;

impl Credit {
    /// When the slice of the vCPU that runs on `p` ends, ns.
    pub fn slice_end_ns(&self, p: PcpuId) -> u64 {
        self.places[p].slice_end_ns
    }

    /// A slice begins on `p`. The end of the first one is random: pCPUs start at arbitrary times,
    /// and equal phases would run vCPUs together.
    fn begin_slice(&mut self, p: PcpuId, now_ns: u64) {
        let place = &mut self.places[p];
        let first = !std::mem::replace(&mut place.used, true);
        let ns = |ns: u64| ns.min(u64::from(u32::MAX)) as u32;
        let slop_ns = u64::from(self.clock_rng.uniform(0, ns(self.slop_ns)));
        let length_ns = if first {
            u64::from(self.clock_rng.uniform(0, ns(self.slice_ns)))
        } else {
            self.slice_ns + slop_ns
        };
        place.slice_end_ns = now_ns + length_ns;
    }

    /// Time between hand-outs of credit, ns.
    pub fn period_ns(&self) -> u64 {
        self.slot_ns * u64::from(self.params.slots_per_assignment)
    }

    /// Whose vCPUs run together from now on. The guest itself sets its VCRD LOW again, by a
    /// hypercall (section 4.1). It cannot do that while none of its vCPUs runs.
    pub(super) fn refresh_high(&mut self, now_ns: u64) {
        for (i, vm) in self.vms.ids().zip(self.vms.iter_mut()) {
            let runs = |v: &Vcpu| v.vm == i.0 && v.running != 0;
            vm.high = u8::from(match self.coscheduling {
                Coscheduling::None => false,
                Coscheduling::Con => self.named[i],
                Coscheduling::Vcrd => {
                    self.learned[i].is_high(now_ns / 1000)
                        || (vm.high != 0 && !self.vcpus.iter().any(runs))
                }
                Coscheduling::VcrdPle => self.learned[i].is_high(now_ns / 1000),
                // Refused before a run (setup/check.rs).
                Coscheduling::VcrdUser | Coscheduling::VcrdBoth => false,
            });
            self.books.one_account[i] |= vm.high != 0;
        }
    }

    /// Whether the siblings of `v`, which has just been chosen, should run with it.
    pub fn leads(&self, v: VcpuId) -> bool {
        let vm = self.vcpus[v].vm;
        self.has_credit(v) && self.vms[VmId(vm)].high != 0
    }

    fn has_vm(&self, pcpu: PcpuId, vm: VmId) -> bool {
        self.vcpus.iter().any(|v| v.pcpu == pcpu.0 && v.vm == vm.0)
    }

    /// Credit's choice for `p`: the vCPU to run there, or [`NONE`]. Updates the queues; the former
    /// current vCPU waits.
    pub fn switch(&mut self, core: &mut Core, queues: &mut Queues, p: PcpuId) -> VcpuId {
        let before = queues[p].current;
        if before != NONE {
            self.pay(p, before, core.now_ns);
            self.vcpus[before].running = 0;
        }
        self.refresh_high(core.now_ns);
        let slot = core.now_ns / self.slot_ns;
        let may_raise = slot != self.raised_in;
        let last = self.places[p].last;
        let hidden = self.hide_pinned(core, p);
        let raised: u32 =
            self.vcpus.iter().map(|v| u32::from(v.pcpu == p.0) & u32::from(v.raised)).sum();
        let decision = self.pick(p, last, may_raise);
        let chosen = decision.vcpu().map_or(NONE, |v| VcpuId(v as u32));
        self.show_pinned(&hidden, chosen, p, decision.raised > 0);
        let left: u32 =
            self.vcpus.iter().map(|v| u32::from(v.pcpu == p.0) & u32::from(v.raised)).sum();
        let goes_along = match self.xen {
            true => chosen != NONE && may_raise && self.leads(chosen),
            false => decision.raised > 0,
        };
        let place = &mut self.places[p];
        place.boosted = left < raised;
        place.chose_ns = core.now_ns;
        if chosen != NONE {
            place.last = Some(chosen);
            self.begin_slice(p, core.now_ns);
        }
        if chosen != before {
            self.places[p].paid_ns = core.now_ns;
            if before != NONE {
                queues[p].waiting.push(before);
            }
            queues[p].current = chosen;
            if chosen != NONE {
                let from = core.vcpus[chosen].on.pcpu;
                queues[from].waiting.retain(|&w| w != chosen);
            }
            if before != NONE && (!self.xen || self.may_run(before)) {
                self.ask_idle(core, queues, before);
            }
        }
        if goes_along {
            self.places[p].boosted = true;
            self.gather(core, queues, chosen, decision.raised);
        }
        chosen
    }

    /// Pinned vCPUs of other pCPUs must not come to `p`, so the policy must leave raised ones where
    /// they are. Returns those that were not raised before.
    fn hide_pinned(&mut self, core: &Core, p: PcpuId) -> Vec<VcpuId> {
        let mut hidden = Vec::new();
        for (v, vcpu) in self.vcpus.ids().zip(self.vcpus.iter_mut()) {
            if vcpu.pcpu != p.0 && vcpu.raised == 0 && core.vcpus[v].on.pinned {
                vcpu.raised = 1;
                hidden.push(v);
            }
        }
        hidden
    }

    /// Undoes [`Credit::hide_pinned`], except for those that the pick raised.
    fn show_pinned(&mut self, hidden: &[VcpuId], chosen: VcpuId, p: PcpuId, raised: bool) {
        let vm = (chosen != NONE).then(|| self.vcpus[chosen].vm);
        for &v in hidden {
            let vcpu = &mut self.vcpus[v];
            let is_raised = raised && Some(vcpu.vm) == vm && vcpu.pcpu != p.0;
            vcpu.raised = u8::from(is_raised && vcpu.runnable != 0 && vcpu.running == 0);
        }
    }

    /// Algorithm 4, line 7: the PCPUs of the raised siblings of `leader` reschedule. Siblings that
    /// run already begin a new slice, because otherwise they would leave when their old one ends. A
    /// vCPU that came first itself is not interrupted before its pCPU ticks: priorities are equal,
    /// and two gangs would tear each other apart.
    fn gather(&mut self, core: &mut Core, queues: &Queues, leader: VcpuId, raised: u32) {
        self.raised_in = core.now_ns / self.slot_ns;
        let vm = self.vcpus[leader].vm;
        self.stats[VmId(vm)].gangs += u64::from(raised > 0);
        core.charge(leader, core.prices.ipi_ns * u64::from(raised), Cause::Other);
        for v in self.vcpus.ids() {
            let Vcpu { pcpu, running, raised, .. } = self.vcpus[v];
            let pcpu = PcpuId(pcpu);
            if self.vcpus[v].vm != vm || v == leader {
                continue;
            }
            if running != 0 {
                self.begin_slice(pcpu, core.now_ns);
                arm_tick_by(core, pcpu, self.slice_end_ns(pcpu));
            } else if raised != 0 && !self.places[pcpu].boosted {
                ask_reschedule(core, pcpu, queues[pcpu].current);
            }
        }
    }

    /// `v` waits: an idle pCPU may take it. By maximal credit all that idle choose.
    fn ask_idle(&self, core: &mut Core, queues: &Queues, v: VcpuId) {
        if core.vcpus[v].on.pinned {
            return;
        }
        if !self.xen {
            for p in core.pcpus.ids().filter(|&p| queues[p].current == NONE) {
                ask_reschedule(core, p, NONE);
            }
            return;
        }
        if let Some(p) = self.idle_pcpu(core, queues, v) {
            ask_reschedule(core, p, queues[p].current);
        }
    }

    /// An idle pCPU; if siblings run together, one without a sibling of `v`.
    fn idle_pcpu(&self, core: &Core, queues: &Queues, v: VcpuId) -> Option<PcpuId> {
        let count = core.pcpus.len() as u32;
        let Vcpu { pcpu: own, vm, .. } = self.vcpus[v];
        let vm = VmId(vm);
        let is_high = self.vms[vm].high != 0;
        (1..count)
            .map(|i| PcpuId((own + i) % count))
            .find(|&p| queues[p].tasks() == 0 && !(is_high && self.has_vm(p, vm)))
    }

    /// `v` wants to run: on its pCPU, or on an idle one if its own is busy. By maximal credit it waits
    /// at its pCPU, and an idle one takes it from there.
    pub fn enqueue(&mut self, core: &mut Core, queues: &mut Queues, v: VcpuId, is_new: bool) {
        self.refresh_high(core.now_ns);
        let own = PcpuId(self.vcpus[v].pcpu);
        let stays = !self.xen || core.vcpus[v].on.pinned || queues[own].tasks() == 0;
        let p = if stays { own } else { self.idle_pcpu(core, queues, v).unwrap_or(own) };
        let current = queues[p].current;
        core.vcpus[v].on.pcpu = p;
        queues[p].waiting.push(v);
        let woken = &mut self.vcpus[v];
        woken.pcpu = p.0;
        woken.runnable = 1;
        let has_credit = self.has_credit(v);
        let woken = &mut self.vcpus[v];
        if self.boost && has_credit && !is_new {
            woken.raised = 1;
        }
        let is_raised = woken.raised != 0;
        let place = &self.places[p];
        let comes_first = match current {
            NONE => self.may_run(v),
            _ if place.boosted => false,
            _ => is_raised || (has_credit && !self.has_credit(current)),
        };
        if comes_first {
            ask_reschedule(core, p, queues[p].current);
        } else if !self.xen {
            self.ask_idle(core, queues, v);
        }
    }

    /// The vCPU that runs on `p` sleeps.
    pub fn sleep(&mut self, core: &Core, queues: &mut Queues, p: PcpuId) {
        let queue = &mut queues[p];
        let v = std::mem::replace(&mut queue.current, NONE);
        if v != NONE {
            self.pay(p, v, core.now_ns);
            let vcpu = &mut self.vcpus[v];
            (vcpu.runnable, vcpu.running, vcpu.raised) = (0, 0, 0);
        }
    }

    /// `p` ticks: `on_grid`, so that the running vCPU pays by Xen's rules, or because a slice is over.
    /// Returns whether to choose again.
    pub fn tick(&mut self, core: &Core, queues: &Queues, p: PcpuId, on_grid: bool) -> bool {
        if !self.xen {
            let place = &mut self.places[p];
            let over = core.now_ns >= place.slice_end_ns;
            place.boosted &= !over;
            return over;
        }
        if on_grid {
            self.sampled(queues[p].current);
        }
        let place = &mut self.places[p];
        place.boosted = false;
        let over = core.now_ns >= place.slice_end_ns;
        let queue = &queues[p];
        over || queue.waiting.iter().any(|&v| self.vcpus[v].raised != 0)
    }

    /// Credits are due, or by maximal credit the slot of a pCPU that idles ends.
    pub fn assign(&mut self, core: &mut Core, queues: &mut Queues) {
        if core.now_ns >= self.hand_out_ns {
            self.hand_out_ns = core.now_ns + self.period_ns();
            self.refresh_high(core.now_ns);
            self.hand_out();
            self.requeue(core, queues);
        }
        let next = match self.xen {
            true => self.ask_by_rank(core, queues),
            false => self.ask_at_slot_ends(core, queues),
        };
        core.events.arm(Event::CreditPeriod, next);
    }

    /// vCPUs that Algorithm 3 has moved are queued where they belong; pinned ones stay.
    fn requeue(&mut self, core: &mut Core, queues: &mut Queues) {
        for v in core.vcpus.ids() {
            let (from, to) = (core.vcpus[v].on.pcpu, PcpuId(self.vcpus[v].pcpu));
            if from == to {
                continue;
            }
            if core.vcpus[v].on.pinned {
                self.vcpus[v].pcpu = from.0;
                continue;
            }
            if core.vcpus[v].on.state == State::Ready {
                queues[from].waiting.retain(|&w| w != v);
                queues[to].waiting.push(v);
            }
            core.vcpus[v].on.pcpu = to;
        }
    }

    /// pCPUs whose vCPU is parked, or that idle beside one that may run again, choose. Returns when
    /// credits are handed out next.
    fn ask_by_rank(&self, core: &mut Core, queues: &Queues) -> u64 {
        for p in core.pcpus.ids() {
            let queue = &queues[p];
            let chooses = match queue.current {
                NONE => !self.all_spent(&queue.waiting),
                v => !self.may_run(v),
            };
            if chooses {
                ask_reschedule(core, p, queues[p].current);
            }
        }
        self.hand_out_ns
    }
}
