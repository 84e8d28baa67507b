// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the machine asks the host's scheduler, and the answers.

use super::ask::{arm_tick_by, ask_reschedule};
use super::credit::CoschedulingStats;
use super::fair::{RunQueue, NONE};
use super::state::{Policy, Scheduler};
use crate::core::{Cause, Core, State};
use crate::engine::{Event, PcpuId, Table, VcpuId, VmId};
use unspin_policy::gang;
use unspin_policy::kvm_stock::Yield;

impl Scheduler {
    /// The vCPU that runs on `p`, or [`VcpuId::NONE`].
    #[inline]
    pub fn current(&self, p: PcpuId) -> VcpuId {
        self.queues[p].current
    }

    /// Updates the scheduler's times of `p`. Returns whether the slice of the running vCPU is over.
    #[inline]
    pub fn bill(&mut self, core: &mut Core, p: PcpuId) -> bool {
        let ns = self.unbilled_ns(core, p);
        match self.policy {
            Policy::Fair => self.bill_fair(p, ns),
            // Credit charges at ticks, or when a vCPU leaves its pCPU or its slot ends.
            Policy::Credit(_) => false,
        }
    }

    #[inline]
    fn bill_fair(&mut self, p: PcpuId, ns: u64) -> bool {
        let current = self.queues[p].current;
        let over = self.queues[p].ran(&self.tunables, &mut self.entities, ns);
        match &mut self.bandwidth {
            Some(bandwidth) if current != NONE => bandwidth.ran(current, ns) | over,
            _ => over,
        }
    }

    /// Time that `p`'s scheduler has not billed yet. It counts as billed from now on.
    #[inline]
    pub fn unbilled_ns(&mut self, core: &mut Core, p: PcpuId) -> u64 {
        let pcpu = &mut core.pcpus[p];
        core.now_ns - std::mem::replace(&mut pcpu.billed_ns, core.now_ns)
    }

    /// Offset of `p`'s ticks. Linux spreads skewed ticks over half a period
    /// (tick_setup_sched_timer()). Xen's timers start when each pCPU is brought up, at any time of
    /// a period.
    pub fn tick_offset_ns(&self, core: &Core, p: PcpuId) -> u64 {
        let range_ns = match &self.policy {
            Policy::Credit(credit) if credit.xen => core.model.tick_ns,
            Policy::Fair | Policy::Credit(_) => core.model.tick_ns / 2,
        };
        let skew = u64::from(if core.model.skew_tick { p.0 } else { 0 });
        range_ns * skew / u64::from(core.pcpus.len() as u32)
    }

    /// Whether `p`'s own tick is due now, rather than the end of a slice.
    pub fn ticks_now(&self, core: &Core, p: PcpuId) -> bool {
        let since = core.now_ns.checked_sub(self.tick_offset_ns(core, p));
        since.is_some_and(|ns| ns % core.model.tick_ns == 0)
    }

    /// Arms `p`'s next tick. With skew_tick each pCPU ticks on a grid of its own, otherwise all
    /// tick at the same time.
    pub fn arm_tick(&mut self, core: &mut Core, p: PcpuId) {
        let period = core.model.tick_ns;
        let offset = self.tick_offset_ns(core, p);
        let on_grid = (core.now_ns + period - offset) / period * period + offset;
        let late_ns = self.housekeeping.as_mut().map_or(0, |own| own.late_ns(p));
        let next = on_grid + late_ns;
        core.events.arm(Event::Tick(p), next.max(core.now_ns + 1));
        match &self.policy {
            Policy::Fair => {}
            Policy::Credit(credit) => arm_tick_by(core, p, credit.slice_end_ns(p)),
        }
    }

    /// Asks `p` to reschedule; an earlier request stands.
    #[inline]
    pub fn ask_reschedule(&mut self, core: &mut Core, p: PcpuId) {
        ask_reschedule(core, p, self.queues[p].current);
    }

    /// The scheduler's choice for `p`. The vCPU that ran so far waits again.
    #[inline]
    pub fn choose(&mut self, core: &mut Core, p: PcpuId) -> VcpuId {
        match &mut self.policy {
            Policy::Fair if self.turns.is_some() => self.choose_in_turns(core, p),
            Policy::Fair => self.choose_fair(core, p),
            Policy::Credit(credit) => {
                let v = credit.switch(core, &mut self.queues, p);
                if v != NONE {
                    self.arm_tick(core, p);
                }
                v
            }
        }
    }

    /// The fair scheduler's choice.
    #[inline]
    pub(super) fn choose_fair(&mut self, core: &mut Core, p: PcpuId) -> VcpuId {
        self.throttle_current(p);
        let v = self.queues[p].switch(&self.tunables, &mut self.entities);
        if v == NONE && self.pull(core, p) {
            return self.queues[p].switch(&self.tunables, &mut self.entities);
        }
        v
    }

    pub(super) fn enqueue(&mut self, core: &mut Core, v: VcpuId, is_new: bool) {
        match &mut self.policy {
            Policy::Fair => {
                let p = self.pcpu_for(core, v);
                self.enqueue_on(core, v, p, is_new);
            }
            Policy::Credit(credit) => credit.enqueue(core, &mut self.queues, v, is_new),
        }
    }

    /// Adds `v` to the queue of `p`; for the fair scheduler.
    pub(super) fn enqueue_on(&mut self, core: &mut Core, v: VcpuId, p: PcpuId, is_new: bool) {
        core.vcpus[v].on.pcpu = p;
        let over = self.bill(core, p);
        if self.turns.is_some() {
            self.filler_goes(core, v, p);
        }
        if let Some(groups) = &mut self.groups {
            groups.set_runnable(v, true, core.now_ns);
            self.entities[v].set_weight(&self.tunables, groups.weight(v, core.now_ns));
        }
        let queue = &mut self.queues[p];
        queue.enqueue(&self.tunables, &mut self.entities, v, is_new);
        if !self.may_queue(p, v) {
            return;
        }
        let current = self.queues[p].current;
        let asked =
            current != NONE && core.vcpus[current].exit.need_resched || self.is_asked(core, p);
        let queue = &mut self.queues[p];
        if over || queue.preempts(&self.tunables, &mut self.entities, v) {
            if !asked {
                queue.prefer_woken(&self.tunables, v);
            }
            self.ask_reschedule(core, p);
        }
    }

    /// Sets the weight of `v` by its group's load. `v` is running, and billed until now.
    fn reweigh(&mut self, core: &mut Core, v: VcpuId) {
        let Some(groups) = &mut self.groups else { return };
        groups.refresh(v, core.now_ns);
        let weight = groups.weight(v, core.now_ns);
        let queue = &mut self.queues[core.vcpus[v].on.pcpu];
        queue.reweigh(&self.tunables, &mut self.entities, v, weight);
    }

    /// The pCPU for a vCPU that wants to run: its last one, unless the vCPU may move and another
    /// pCPU is idle or, if none is idle, has a shorter queue.
    fn pcpu_for(&self, core: &Core, v: VcpuId) -> PcpuId {
        let vcpu = &core.vcpus[v];
        #[cfg(test)]
        if self.turns.as_ref().is_some_and(|turns| turns.has(super::gangs::Fault::StaysPut)) {
            return vcpu.on.pcpu;
        }
        // Prefer an idle core to an idle thread of a busy core (select_idle_core()).
        let beside = |p| core.sibling(p).map_or(0, |sibling| self.queues[sibling].tasks());
        let tasks = |p| (self.queues[p].tasks(), beside(p));
        if vcpu.on.pinned || tasks(vcpu.on.pcpu) == (0, 0) {
            return vcpu.on.pcpu;
        }
        let count = core.pcpus.len() as u32;
        let others = (0..count).map(|i| PcpuId((vcpu.on.pcpu.0 + i) % count));
        let least = others.min_by_key(|&p| tasks(p));
        least.unwrap_or(vcpu.on.pcpu)
    }

    /// Takes a waiting vCPU from the longest queue for the idle `p`. Returns whether it got one.
    fn pull(&mut self, core: &mut Core, p: PcpuId) -> bool {
        if self.movable == 0 {
            return false;
        }
        let movable = |q: &RunQueue| q.waiting.iter().copied().find(|&v| !core.vcpus[v].on.pinned);
        let longest = (core.pcpus.ids())
            .filter(|&from| movable(&self.queues[from]).is_some())
            .max_by_key(|&from| self.queues[from].waiting.len());
        let Some(from) = longest else { return false };
        let Some(v) = movable(&self.queues[from]) else { return false };
        self.bill(core, from);
        self.queues[from].take(&self.tunables, &mut self.entities, v);
        self.queues[p].give(&self.tunables, &mut self.entities, v);
        core.vcpus[v].on.pcpu = p;
        true
    }

    #[inline]
    pub fn is_asked(&self, core: &Core, p: PcpuId) -> bool {
        core.events.time_of(Event::Reschedule(p)).is_some()
    }

    /// A tick of `p`, whose vCPU is accounted for. Returns whether `p` should choose again.
    #[inline]
    pub fn tick(&mut self, core: &mut Core, p: PcpuId) -> bool {
        let billed = self.bill(core, p);
        self.reweigh(core, self.current(p));
        if core.model.group_load_lags {
            self.balance_at_tick(core, p);
        }
        let on_grid = !matches!(self.policy, Policy::Fair) && self.ticks_now(core, p);
        let over = match &mut self.policy {
            Policy::Fair => self.queues[p].tick(&self.tunables, &self.entities),
            Policy::Credit(credit) => credit.tick(core, &self.queues, p, on_grid),
        };
        billed | over
    }

    /// Whether the scheduler has no directed yield, as Xen of Credit's time.
    pub fn yields_to_nobody(&self) -> bool {
        match self.policy {
            Policy::Fair => false,
            Policy::Credit(_) => true,
        }
    }

    /// Whether yield_to() by the vCPU on `p` takes the locks of run queues. It takes none if it finds
    /// first that both queues have one task.
    #[inline]
    pub fn locks_queues(&self, core: &Core, p: PcpuId, target: VcpuId) -> bool {
        let to = core.vcpus[target].on.pcpu;
        self.queues[p].tasks() > 1 || self.queues[to].tasks() > 1
    }

    /// yield_to(): the vCPU on `p` asks that `target` run in its place.
    #[inline]
    pub fn yield_to(&mut self, core: &mut Core, p: PcpuId, target: VcpuId) -> Yield {
        let to = core.vcpus[target].on.pcpu;
        if !self.locks_queues(core, p, target) {
            return Yield::Failed;
        }
        if core.vcpus[target].on.state != State::Ready || self.is_out(target) {
            return Yield::NotPossible;
        }
        self.bill(core, p);
        self.queues[to].set_next(target);
        self.queues[p].yield_current(&self.tunables, &mut self.entities);
        if to != p {
            self.ask_reschedule(core, to);
        }
        Yield::Boosted
    }

    /// The vCPU on `p` yields to any other.
    pub fn yield_current(&mut self, core: &mut Core, p: PcpuId) {
        self.bill(core, p);
        self.queues[p].yield_current(&self.tunables, &mut self.entities);
    }

    /// Whether KVM polls for a wake-up of `v`, which halts. It does so only while no other task wants
    /// `p`.
    pub fn polls_before_halt(&self, core: &mut Core, p: PcpuId, v: VcpuId) -> bool {
        let ns = core.model.halt_poll_ns;
        let exit = &mut core.vcpus[v].exit;
        exit.halt_polls = !exit.halt_polls && ns > 0 && self.queues[p].waiting.is_empty();
        let polls = exit.halt_polls;
        if polls {
            core.charge(v, ns, Cause::Idle);
        }
        polls
    }

    /// The vCPU on `p` leaves the queue in order to sleep.
    pub fn sleep(&mut self, core: &mut Core, p: PcpuId) {
        self.bill(core, p);
        match &mut self.policy {
            Policy::Fair => self.queues[p].dequeue_current(&self.tunables, &mut self.entities),
            Policy::Credit(credit) => credit.sleep(core, &mut self.queues, p),
        }
    }

    /// `v` is asleep from now on.
    pub fn slept(&mut self, core: &mut Core, v: VcpuId) {
        if let Some(groups) = &mut self.groups {
            groups.set_runnable(v, false, core.now_ns);
        }
        self.give_back(core, v);
    }

    /// `v` wakes up and wants to run.
    pub fn wakes(&mut self, core: &mut Core, v: VcpuId) {
        if let Some(asym) = &mut self.asym {
            asym.woken(v, core.now_ns);
        }
        if let Some(turns) = &mut self.turns {
            turns.vcpus[v].back_until_ns = core.cpu_ns(v) + gang::BACK_US * 1000;
        }
        self.movable += u32::from(!core.vcpus[v].on.pinned);
        self.enqueue(core, v, false);
    }

    /// `v` is new and wants to run.
    pub fn starts(&mut self, core: &mut Core, v: VcpuId) {
        self.movable += u32::from(!core.vcpus[v].on.pinned);
        self.enqueue(core, v, true);
    }

    /// `v` has lost its pCPU, and waits.
    #[inline]
    pub fn preempted(&mut self, core: &Core, v: VcpuId) {
        if let Some(asym) = &mut self.asym {
            asym.preempted(core.vcpus[v].on.pcpu, v);
        }
        if let Some(turns) = &mut self.turns {
            turns.vcpus[v].late = false;
        }
        self.movable += u32::from(!core.vcpus[v].on.pinned);
    }

    /// `v` has got `p`.
    #[inline]
    pub fn runs(&mut self, core: &Core, p: PcpuId, v: VcpuId) {
        if let Some(asym) = &mut self.asym {
            asym.runs(p, v, core.now_ns);
        }
        if let Some(turns) = &mut self.turns {
            turns.vcpus[v].on_ns = core.now_ns;
        }
        self.movable -= u32::from(!core.vcpus[v].on.pinned);
    }

    /// `p` has nothing to run.
    pub fn idles(&mut self, core: &mut Core, p: PcpuId) {
        if core.model.group_load_lags {
            self.balance_when_idle(core, p);
        }
        if self.turns.is_some() {
            self.hole(core, p);
        }
    }

    /// The vCPU that ran on `p` waits in its queue.
    pub fn put_back(&mut self, p: PcpuId) {
        self.queues[p].put_back();
    }

    /// `by` sends its sibling `woken` the interrupt that wakes it.
    pub fn note_waker(&mut self, core: &Core, woken: VcpuId, by: VcpuId) {
        if let Some(asym) = &mut self.asym {
            asym.waker(woken, core.vcpus[by].index);
        }
    }

    /// An over-threshold wait for a spin-lock in `vm` has ended; `passes` counts the times that its
    /// locks changed hands.
    pub fn long_wait(&mut self, vm: VmId, passes: u64) {
        match &mut self.policy {
            Policy::Fair => {}
            Policy::Credit(credit) => credit.long_wait(vm, passes),
        }
    }

    /// The guest of `vm` has reported an over-threshold wait.
    pub fn adjusting_event(&mut self, core: &Core, vm: VmId) {
        match &mut self.policy {
            Policy::Fair => {}
            Policy::Credit(credit) => credit.adjusting_event(vm, core.now_ns),
        }
    }

    /// A PLE exit of `v` whose window was `window_cycles`.
    pub fn watch_ple_exit(&mut self, core: &Core, v: VcpuId, window_cycles: u32) {
        match &mut self.policy {
            Policy::Fair => {}
            Policy::Credit(credit) => credit.watch_ple_exit(core, v, window_cycles),
        }
    }

    /// Arms the end of the first period of asymmetric vCPUs.
    pub fn arm_asym_period(&self, core: &mut Core) {
        if let Some(asym) = &self.asym {
            core.events.arm(Event::AsymPeriod, core.now_ns + asym.period_ns());
        }
    }

    /// What coscheduling did to each VM; empty without Credit.
    pub fn coscheduling_stats(&self) -> Vec<CoschedulingStats> {
        match &self.policy {
            Policy::Fair => Vec::new(),
            Policy::Credit(credit) => credit.stats.all().to_vec(),
        }
    }

    /// Creates the pCPUs' queues, each with room for every vCPU that may come to it.
    pub fn make_queues(&mut self, core: &Core) {
        let mut pinned: Table<PcpuId, usize> = vec![0; core.pcpus.len()].into();
        for vcpu in core.vcpus.iter().filter(|v| v.on.pinned) {
            pinned[vcpu.on.pcpu] += 1;
        }
        let free = core.vcpus.iter().filter(|v| !v.on.pinned).count();
        self.queues.extend(pinned.iter().map(|n| RunQueue::new(n + free)));
    }

    /// Arms the first period of everything periodic.
    pub fn arm_periods(&mut self, core: &mut Core) {
        match self.policy {
            Policy::Fair => {}
            Policy::Credit(_) => core.events.arm(Event::CreditPeriod, 0),
        }
        self.arm_asym_period(core);
        if self.bandwidth.is_some() {
            core.events.arm(Event::BandwidthPeriod, 0);
        }
        if let Some(own) = &mut self.housekeeping {
            core.pcpus.ids().for_each(|p| own.arm(core, p));
        }
        self.arm_turns(core);
    }

    /// A task of the host wants `p`. Returns its length in ns, and arms the next one.
    pub fn host_task(&mut self, core: &mut Core, p: PcpuId) -> u64 {
        let Some(own) = &mut self.housekeeping else { return 0 };
        own.arm(core, p);
        let current = self.queues[p].current;
        if current != NONE {
            self.entities[current].was_put();
        }
        own.length_ns(p)
    }

    /// Hands out credits if the policy is Credit.
    pub fn assign_credits(&mut self, core: &mut Core) {
        match &mut self.policy {
            Policy::Fair => {}
            Policy::Credit(credit) => credit.assign(core, &mut self.queues),
        }
    }

    /// Ends an allocation period of asymmetric vCPUs. All vCPUs are accounted for, and all pCPUs
    /// billed. Returns the pCPU of each vCPU from now on.
    pub fn end_period(&mut self, core: &Core) -> Vec<PcpuId> {
        let Scheduler { asym, entities, tunables, groups, .. } = self;
        match asym {
            Some(asym) => asym.end_period(core, entities, tunables, groups.as_deref_mut()),
            None => Vec::new(),
        }
    }

    /// Moves `v`, which does not run, to the queue of another pCPU. Both queues are billed.
    pub fn change_queue(&mut self, core: &mut Core, v: VcpuId, to: PcpuId) {
        let from = core.vcpus[v].on.pcpu;
        let (source, target) = self.queues.both(from, to);
        let mut comes_first = false;
        if core.vcpus[v].on.state == State::Halted {
            target.adopt(source, &mut self.entities, v);
        } else {
            source.take(&self.tunables, &mut self.entities, v);
            target.give(&self.tunables, &mut self.entities, v);
            comes_first = target.preempts(&self.tunables, &mut self.entities, v);
        }
        core.vcpus[v].on.pcpu = to;
        if comes_first {
            self.ask_reschedule(core, to);
        }
    }
}
