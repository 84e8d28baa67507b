// SPDX-License-Identifier: MIT OR Apache-2.0
//! Xen's Credit scheduler as the host's: who runs is decided by `policy/credit`, here are its clocks
//! and interrupts; its books are in `books.rs`, what it learns of vCPUs that should run together in
//! `asman.rs`.
//!
//! Weng, Liu, Yu, Li, "Dynamic Adaptive Scheduling for Virtual Machines" (ASMan), HPDC 2011,
//! sections 3.3, 4.4 and 4.5, and Xen 3.3's `sched_credit.c`, the paper's host: each pCPU ticks by
//! its own clock (10 ms), a vCPU runs for a slice (30 ms) from when it was put on its pCPU, credits
//! are handed out to all at once (every 30 ms). A vCPU that wakes with credit comes first on its
//! pCPU until that ticks (`BOOST`). A pCPU that runs somebody looks at credits when a slice ends,
//! when somebody is boosted or raised, and, on a capped host, when credits are handed out.

mod asman;
mod books;

pub use asman::NEIGHBOURS;

use super::fair::NONE;
use super::Scheduler;
use crate::core::{Cause, Core, CreditHost, Host, State};
use crate::engine::{Event, PcpuId, Rng, Table, VcpuId, VmId};
use asman::Burst;
use books::{Books, Standing};

use unspin_policy::credit::{self, Params, Pcpu, Vcpu};
use unspin_policy::vcrd;
use unspin_scenario::plan::Coscheduling;

/// What Credit keeps of a pCPU.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Who ran there last.
    last: Option<VcpuId>,
    /// When the slice of who runs ends, ns.
    slice_end_ns: u64,
    /// Somebody has run there.
    used: bool,
    /// Who runs came first because it was raised or boosted, and has not seen a tick since.
    boosted: bool,
}

/// What coscheduling did to one VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoschedulingStats {
    /// Waits for a spin-lock that were over-threshold, as the guest measures them.
    pub long_waits: u64,
    /// Those that came within [`NEIGHBOURS`](crate::NEIGHBOURS) passes of the VM's locks after another.
    pub long_neighbours: u64,
    /// Adjusting events of VCRD.
    pub events: u64,
    /// For how long the VM's VCRD was set HIGH, us.
    pub high_us: u64,
    /// How often its vCPUs were raised to run beside one of them.
    pub gangs: u64,
}

impl CoschedulingStats {
    /// What happened since an earlier reading.
    pub fn since(&self, first: &CoschedulingStats) -> CoschedulingStats {
        CoschedulingStats {
            long_waits: self.long_waits - first.long_waits,
            long_neighbours: self.long_neighbours - first.long_neighbours,
            events: self.events - first.events,
            high_us: self.high_us - first.high_us,
            gangs: self.gangs - first.gangs,
        }
    }
}

#[derive(Debug)]
pub struct Credit {
    pub params: Params,
    slice_ns: u64,
    boost: bool,
    pub coscheduling: Coscheduling,
    pub vcpus: Table<VcpuId, Vcpu>,
    pub vms: Table<VmId, credit::Vm>,
    pub pcpus: Table<PcpuId, Pcpu>,
    pub books: Books,
    places: Table<PcpuId, Place>,
    pub bursts: Table<VcpuId, Burst>,
    pub learner: vcrd::Params,
    learned: Table<VmId, vcrd::State>,
    draws: Table<VmId, Rng>,
    /// Static coscheduling: who is named.
    named: Table<VmId, bool>,
    pub stats: Table<VmId, CoschedulingStats>,
    /// Passes of each VM's locks when a wait was last over-threshold.
    pub long_at: Table<VmId, u64>,
    /// Number of the slot in which a PCPU last raised somebody; none yet is `u64::MAX`.
    raised_in: u64,
    slot_ns: u64,
    /// A slice's timer goes off so much late at most, ns.
    slop_ns: u64,
    clock_rng: Rng,
}

impl Credit {
    pub fn new(host: &Host, own: &CreditHost, coscheduling: Coscheduling, seed: u64) -> Credit {
        let pcpus = host.pcpus;
        Credit {
            params: own.params,
            slice_ns: own.slice_ns,
            boost: own.boost,
            coscheduling,
            vcpus: Table::default(),
            vms: Table::default(),
            pcpus: vec![Pcpu::default(); pcpus as usize].into(),
            books: Books::default(),
            places: vec![Place::default(); pcpus as usize].into(),
            bursts: Table::default(),
            learner: own.vcrd,
            learned: Table::default(),
            draws: Table::default(),
            named: Table::default(),
            stats: Table::default(),
            long_at: Table::default(),
            raised_in: u64::MAX,
            slot_ns: host.tick_ns,
            slop_ns: own.slop_ns,
            clock_rng: Rng::new(seed, u32::MAX - 1),
        }
    }

    /// A VM of that weight; `named`: static coscheduling is to run its vCPUs together.
    pub fn add_vm(&mut self, weight: u32, named: bool, seed: u64) {
        self.vms.push(credit::Vm::new(weight));
        self.named.push(named);
        self.learned.push(vcrd::State::new(&self.learner));
        self.draws.push(Rng::new(seed, u32::MAX));
        self.stats.push(CoschedulingStats::default());
        self.long_at.push(u64::MAX);
    }

    /// A vCPU of the last VM, asleep and without credit, as Xen leaves who idles.
    pub fn add_vcpu(&mut self, pcpu: PcpuId) {
        let mut vcpu = Vcpu::new(self.vms.len() as u32 - 1, pcpu.0);
        vcpu.runnable = 0;
        self.vcpus.push(vcpu);
        self.books.of.push(Standing::default());
        self.bursts.push(Burst::default());
    }

    /// When the slice of who runs on `p` ends, ns.
    pub fn slice_end_ns(&self, p: PcpuId) -> u64 {
        self.places[p].slice_end_ns
    }

    /// A slice begins on `p`. The first ends anywhere: when a host's pCPUs began is chance, and
    /// equal phases would run vCPUs together.
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

    /// Whether `v` may run though nobody raised it.
    fn may_run(&self, v: VcpuId) -> bool {
        self.vcpus[v].raised != 0 || !self.books.of[v].parked
    }

    /// Whether nobody of `waiting` may run: the pCPU idles rightly.
    pub fn all_spent(&self, waiting: &[VcpuId]) -> bool {
        waiting.iter().all(|&v| !self.may_run(v))
    }

    /// Whose vCPUs run together as of now. It is the guest that sets its VCRD LOW again, by a
    /// hypercall (section 4.1): while none of its vCPUs runs it cannot.
    fn refresh_high(&mut self, now_ns: u64) {
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
            });
        }
    }

    /// What a slot is worth where that debt is handed out as well.
    pub fn more_per_slot(&self, params: &Params, debt: u64) -> u32 {
        let slots = u64::from(params.slots_per_assignment) * self.pcpus.len() as u64;
        let more = (debt / slots.max(1)).min(u64::from(u32::MAX / 2)) as u32;
        params.credit_per_slot.saturating_add(more)
    }

    /// Whether the siblings of `v`, which has just been chosen, are to run with it.
    pub fn leads(&self, v: VcpuId) -> bool {
        let vm = self.vcpus[v].vm;
        self.has_credit(v) && self.vms[VmId(vm)].high != 0
    }

    fn has_vm(&self, pcpu: PcpuId, vm: VmId) -> bool {
        self.vcpus.iter().any(|v| v.pcpu == pcpu.0 && v.vm == vm.0)
    }
}

impl Scheduler {
    /// Credit's choice for `p`: who is to run there, [`NONE`] for nobody. The queues follow; the
    /// former current one waits.
    pub fn switch_credit(&mut self, core: &mut Core, credit: &mut Credit, p: PcpuId) -> VcpuId {
        let before = self.queues[p].current;
        if before != NONE {
            credit.vcpus[before].running = 0;
        }
        credit.refresh_high(core.now_ns);
        let slot = core.now_ns / credit.slot_ns;
        let may_raise = slot != credit.raised_in;
        let last = credit.places[p].last;
        let hidden = self.hide_pinned(core, credit, p);
        let raised: u32 =
            credit.vcpus.iter().map(|v| u32::from(v.pcpu == p.0) & u32::from(v.raised)).sum();
        let decision = credit.pick(p, last, may_raise);
        let chosen = decision.vcpu().map_or(NONE, |v| VcpuId(v as u32));
        self.show_pinned(credit, &hidden, chosen, p, decision.raised > 0);
        let left: u32 =
            credit.vcpus.iter().map(|v| u32::from(v.pcpu == p.0) & u32::from(v.raised)).sum();
        let goes_along = chosen != NONE && may_raise && credit.leads(chosen);
        let place = &mut credit.places[p];
        place.boosted = left < raised;
        if chosen != NONE {
            place.last = Some(chosen);
            credit.begin_slice(p, core.now_ns);
        }
        if chosen != before {
            if before != NONE {
                self.queues[p].waiting.push(before);
            }
            self.queues[p].current = chosen;
            if chosen != NONE {
                let from = core.vcpus[chosen].on.pcpu;
                self.queues[from].waiting.retain(|&w| w != chosen);
            }
            if before != NONE && credit.may_run(before) {
                self.ask_idle(core, credit, before);
            }
        }
        if goes_along {
            credit.places[p].boosted = true;
            self.gather(core, credit, chosen, decision.raised);
        }
        chosen
    }

    /// Pinned vCPUs of other pCPUs must not come to `p`: the policy leaves raised ones where they
    /// are. Returns who was not raised before.
    fn hide_pinned(&self, core: &Core, credit: &mut Credit, p: PcpuId) -> Vec<VcpuId> {
        let mut hidden = Vec::new();
        for (v, vcpu) in credit.vcpus.ids().zip(credit.vcpus.iter_mut()) {
            if vcpu.pcpu != p.0 && vcpu.raised == 0 && core.vcpus[v].on.pinned {
                vcpu.raised = 1;
                hidden.push(v);
            }
        }
        hidden
    }

    /// Undoes [`Scheduler::hide_pinned`], but for those that the pick raised.
    fn show_pinned(
        &self,
        credit: &mut Credit,
        hidden: &[VcpuId],
        chosen: VcpuId,
        p: PcpuId,
        raised: bool,
    ) {
        let vm = (chosen != NONE).then(|| credit.vcpus[chosen].vm);
        for &v in hidden {
            let vcpu = &mut credit.vcpus[v];
            let is_raised = raised && Some(vcpu.vm) == vm && vcpu.pcpu != p.0;
            vcpu.raised = u8::from(is_raised && vcpu.runnable != 0 && vcpu.running == 0);
        }
    }

    /// Algorithm 4, line 7: the PCPUs of the siblings of `leader` that were raised reschedule. Those
    /// that run already begin a slice, or they would leave when their old one ends. Whoever came first
    /// himself is not interrupted before his pCPU ticks: priorities are equal, and two gangs would
    /// tear each other apart.
    fn gather(&mut self, core: &mut Core, credit: &mut Credit, leader: VcpuId, raised: u32) {
        credit.raised_in = core.now_ns / credit.slot_ns;
        let vm = credit.vcpus[leader].vm;
        credit.stats[VmId(vm)].gangs += u64::from(raised > 0);
        core.charge(leader, core.prices.ipi_ns * u64::from(raised), Cause::Other);
        for v in credit.vcpus.ids() {
            let Vcpu { pcpu, running, raised, .. } = credit.vcpus[v];
            let pcpu = PcpuId(pcpu);
            if credit.vcpus[v].vm != vm || v == leader {
                continue;
            }
            if running != 0 {
                credit.begin_slice(pcpu, core.now_ns);
                self.arm_tick_by(core, pcpu, credit.slice_end_ns(pcpu));
            } else if raised != 0 && !credit.places[pcpu].boosted {
                self.ask_reschedule(core, pcpu);
            }
        }
    }

    /// `v` waits: an idle pCPU may come for it.
    fn ask_idle(&mut self, core: &mut Core, credit: &Credit, v: VcpuId) {
        if core.vcpus[v].on.pinned {
            return;
        }
        if let Some(p) = self.idle_pcpu(core, credit, v) {
            self.ask_reschedule(core, p);
        }
    }

    /// A pCPU without anybody, that has no sibling of `v` if those are to run together.
    fn idle_pcpu(&self, core: &Core, credit: &Credit, v: VcpuId) -> Option<PcpuId> {
        let count = core.pcpus.len() as u32;
        let Vcpu { pcpu: own, vm, .. } = credit.vcpus[v];
        let vm = VmId(vm);
        let is_high = credit.vms[vm].high != 0;
        (1..count)
            .map(|i| PcpuId((own + i) % count))
            .find(|&p| self.queues[p].tasks() == 0 && !(is_high && credit.has_vm(p, vm)))
    }

    /// `v` wants to run: on its pCPU, or on an idle one where its own is taken.
    pub fn enqueue_credit(&mut self, core: &mut Core, v: VcpuId, is_new: bool) {
        let Some(mut credit) = self.credit.take() else { return };
        credit.refresh_high(core.now_ns);
        let own = PcpuId(credit.vcpus[v].pcpu);
        let stays = core.vcpus[v].on.pinned || self.queues[own].tasks() == 0;
        let p = if stays { own } else { self.idle_pcpu(core, &credit, v).unwrap_or(own) };
        let current = self.queues[p].current;
        core.vcpus[v].on.pcpu = p;
        self.queues[p].waiting.push(v);
        let woken = &mut credit.vcpus[v];
        woken.pcpu = p.0;
        woken.runnable = 1;
        let has_credit = credit.has_credit(v);
        let woken = &mut credit.vcpus[v];
        if credit.boost && has_credit && !is_new {
            woken.raised = 1;
        }
        let is_raised = woken.raised != 0;
        let place = &credit.places[p];
        let comes_first = match current {
            NONE => credit.may_run(v),
            _ if place.boosted => false,
            _ => is_raised || (has_credit && !credit.has_credit(current)),
        };
        if comes_first {
            self.ask_reschedule(core, p);
        }
        self.credit = Some(credit);
    }

    /// The vCPU that runs on `p` sleeps.
    pub fn sleep_credit(&mut self, p: PcpuId) {
        let queue = &mut self.queues[p];
        let v = std::mem::replace(&mut queue.current, NONE);
        if let (Some(credit), true) = (&mut self.credit, v != NONE) {
            let vcpu = &mut credit.vcpus[v];
            (vcpu.runnable, vcpu.running, vcpu.raised) = (0, 0, 0);
        }
    }

    /// `p` ticks, what its vCPU ran is paid: whether it is to choose again.
    pub fn tick_credit(&mut self, core: &mut Core, p: PcpuId) -> bool {
        let on_grid = self.ticks_now(core, p);
        let Some(credit) = &mut self.credit else { return false };
        if on_grid {
            credit.sampled(self.queues[p].current);
        }
        let place = &mut credit.places[p];
        place.boosted = false;
        let over = core.now_ns >= place.slice_end_ns;
        let queue = &self.queues[p];
        over || queue.waiting.iter().any(|&v| credit.vcpus[v].raised != 0)
    }

    /// Algorithm 3: everybody gets credits; who was moved is queued where it belongs.
    pub fn assign_credits(&mut self, core: &mut Core) {
        let Some(mut credit) = self.credit.take() else { return };
        credit.refresh_high(core.now_ns);
        credit.hand_out();
        for v in core.vcpus.ids() {
            let (from, to) = (core.vcpus[v].on.pcpu, PcpuId(credit.vcpus[v].pcpu));
            if from == to {
                continue;
            }
            if core.vcpus[v].on.pinned {
                credit.vcpus[v].pcpu = from.0;
                continue;
            }
            if core.vcpus[v].on.state == State::Ready {
                self.queues[from].waiting.retain(|&w| w != v);
                self.queues[to].waiting.push(v);
            }
            core.vcpus[v].on.pcpu = to;
        }
        for p in core.pcpus.ids() {
            let queue = &self.queues[p];
            let chooses = match queue.current {
                NONE => !credit.all_spent(&queue.waiting),
                v => !credit.may_run(v),
            };
            if chooses {
                self.ask_reschedule(core, p);
            }
        }
        let next = core.now_ns + credit.period_ns();
        self.credit = Some(credit);
        core.events.arm(Event::CreditPeriod, next);
    }
}
