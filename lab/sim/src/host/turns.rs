// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps vCPUs from running in turns of other VMs (`gangs`).
//!
//! Modelled on kmod/turns.c and kmod/park.c. A vCPU that may not run on its pCPU sleeps: it is in
//! no queue and is charged nothing, although to its guest it waits. Its turn wakes it, or a hole
//! that it fills, or the limit of 200 ms.

use super::fair::NONE;
#[cfg(test)]
use super::gangs::Fault;
use super::gangs::{TurnsSeen, FIRST_TURN_NS};
use super::state::Scheduler;
use crate::core::{Cause, Core, Effect};
use crate::engine::{Event, PcpuId, VcpuId, VmId};
use unspin_policy::gang::{self, Owner};

/// The longest time that a vCPU may wait for a turn.
const PARK_MAX_NS: u64 = gang::PARK_MAX_MS * 1_000_000;

impl Scheduler {
    /// Whether `v`, which wants to run, is in no queue because it is throttled or it is not its
    /// turn.
    pub fn is_out(&self, v: VcpuId) -> bool {
        self.is_throttled(v) || self.turns.as_ref().is_some_and(|turns| turns.is_parked(v))
    }

    /// Whether `v`, running on `p`, must leave it because it is not its turn.
    pub fn must_leave(&self, core: &Core, v: VcpuId, p: PcpuId) -> bool {
        self.turns.as_ref().is_some_and(|turns| !turns.may_run(core, v, p))
    }

    /// Arms the end of the first turn.
    pub fn arm_turns(&self, core: &mut Core) {
        if self.turns.is_some() {
            core.events.arm(Event::TurnEnd, core.now_ns + FIRST_TURN_NS);
        }
    }

    /// What turns have done so far.
    pub fn turns_seen(&self, now_ns: u64) -> TurnsSeen {
        let Some(turns) = &self.turns else { return TurnsSeen::default() };
        let parked = turns.vcpus.iter().filter_map(|vcpu| vcpu.parked_ns);
        let longest_ns = parked.map(|since_ns| now_ns - since_ns).max().unwrap_or(0);
        let longest_park_ns = turns.seen.longest_park_ns.max(longest_ns);
        TurnsSeen { longest_park_ns, ..turns.seen }
    }

    /// The scheduler's choice for `p` among vCPUs whose turn it is. Others that it finds are
    /// parked.
    pub(super) fn choose_in_turns(&mut self, core: &mut Core, p: PcpuId) -> VcpuId {
        let current = self.queues[p].current;
        if current != NONE && self.must_leave(core, current, p) {
            self.park_current(core, p);
        }
        let mut parked = 0;
        loop {
            let v = self.choose_fair(core, p);
            if v == NONE {
                return v;
            }
            if !self.must_leave(core, v, p) {
                // The host switched to each parked vCPU first.
                core.charge(v, core.prices.switch_ns * parked, Cause::Other);
                return v;
            }
            self.park_current(core, p);
            parked += 1;
        }
    }

    /// Parks the vCPU that runs on `p`, or was just chosen for it.
    fn park_current(&mut self, core: &mut Core, p: PcpuId) {
        let v = self.queues[p].current;
        self.queues[p].dequeue_current(&self.tunables, &mut self.entities);
        self.slept(core, v);
        let Some(turns) = &mut self.turns else { return };
        let vcpu = &mut turns.vcpus[v];
        let spins = core.vcpus[v].exit.in_ple_exit;
        let ran_ns = core.now_ns - vcpu.on_ns;
        let got_on =
            !spins || ran_ns > core.vcpus[v].pauses.window_ns.saturating_mul(gang::SPUN_WINDOWS);
        vcpu.parked_ns = Some(core.now_ns);
        vcpu.at_lock = spins;
        vcpu.late = false;
        let vm = vcpu.vm;
        turns.vms[vm].counts.parks += 1;
        if core.events.time_of(Event::ParkEnd).is_none() {
            core.events.arm(Event::ParkEnd, core.now_ns + PARK_MAX_NS);
        }
        core.effects.push(Effect::Parks(v));
        if got_on {
            self.let_siblings_try(core, v, vm);
        }
    }

    /// `v` may have released a lock: lets siblings that were parked while they waited for one try
    /// again.
    fn let_siblings_try(&mut self, core: &mut Core, v: VcpuId, vm: VmId) {
        let crate::core::Vm { first, vcpus, .. } = core.vms[vm];
        for sibling in first.and_next(vcpus).filter(|sibling| *sibling != v) {
            let Some(turns) = &mut self.turns else { return };
            let of = &mut turns.vcpus[sibling];
            let waited = std::mem::take(&mut of.at_lock);
            if waited && of.parked_ns.is_some() {
                self.fill(core, core.vcpus[sibling].on.pcpu);
            }
        }
    }

    /// Ends the wait of `v` for a turn, and queues it on `to`, or where the scheduler chooses.
    fn unpark(&mut self, core: &mut Core, v: VcpuId, to: Option<PcpuId>) {
        let Some(turns) = &mut self.turns else { return };
        let Some(since_ns) = turns.vcpus[v].parked_ns.take() else { return };
        let ns = core.now_ns - since_ns;
        turns.vms[turns.vcpus[v].vm].counts.parked_ns += ns;
        turns.seen.longest_park_ns = turns.seen.longest_park_ns.max(ns);
        match to {
            Some(p) => self.enqueue_on(core, v, p, false),
            None => self.enqueue(core, v, false),
        }
    }

    /// Ends a turn and starts the next. `wasted` gives the cycles that a VM's PLE exits took.
    pub fn end_turn(&mut self, core: &mut Core, wasted: impl Fn(VmId) -> u64) {
        let crowded = self.is_crowded(core);
        let Some(turns) = &mut self.turns else { return };
        turns.seen.crowded += u64::from(crowded);
        let bandwidth = &self.bandwidth;
        turns.decide(core, wasted, |v| bandwidth.as_ref().is_some_and(|b| b.is_throttled(v)));
        core.events.arm(Event::TurnEnd, turns.end_ns());
        for p in core.pcpus.ids() {
            let current = self.current(p);
            if current != NONE && self.must_leave(core, current, p) {
                self.ask_reschedule(core, p);
            }
        }
        for v in core.vcpus.ids() {
            self.unpark_in_turn(core, v);
        }
    }

    /// Resumes `v` if its turn has come, on its target if it may move.
    fn unpark_in_turn(&mut self, core: &mut Core, v: VcpuId) {
        let Some(turns) = self.turns.as_deref().filter(|turns| turns.is_parked(v)) else { return };
        let on = &core.vcpus[v].on;
        let to = turns.vcpus[v].target.filter(|_| !on.pinned);
        #[cfg(test)]
        let to = to.filter(|_| !turns.has(Fault::StaysPut));
        if turns.may_run(core, v, to.unwrap_or(on.pcpu)) {
            self.unpark(core, v, to);
        }
    }

    /// Whether two vCPUs of some pCPU's owner share that pCPU, although one of them could run on
    /// another of the owner's pCPUs that is free and was not asked to reschedule.
    fn is_crowded(&self, core: &Core) -> bool {
        let Some(turns) = &self.turns else { return false };
        core.pcpus.ids().any(|p| {
            let Owner::Vm(vm) = turns.owner(p) else { return false };
            let is_own = |v: &VcpuId| *v != NONE && core.vcpus[*v].vm.0 as usize == vm;
            let queue = &self.queues[p];
            let waits = queue.waiting.iter().any(|v| is_own(v) && !core.vcpus[*v].on.pinned);
            let is_free = |q: PcpuId| {
                turns.owner(q) == turns.owner(p)
                    && self.queues[q].tasks() == 0
                    && !self.is_asked(core, q)
            };
            is_own(&queue.current) && waits && core.pcpus.ids().any(is_free)
        })
    }

    /// `p` has nothing to run from now on, which leaves a hole in its owner's turn.
    pub(super) fn hole(&mut self, core: &mut Core, p: PcpuId) {
        if let Some(turns) = &mut self.turns {
            turns.pcpus[p].filler = NONE;
            self.fill(core, p);
        }
    }

    /// Lets one of the vCPUs parked on `p` run there if `p` is idle.
    fn fill(&mut self, core: &mut Core, p: PcpuId) {
        let is_idle = core.pcpus[p].idle && self.queues[p].tasks() == 0;
        let Some(turns) = &mut self.turns else { return };
        if !is_idle || turns.owner(p) == Owner::Nobody || turns.pcpus[p].filler != NONE {
            return;
        }
        if let Some(v) = turns.fill(core, p) {
            self.unpark(core, v, None);
        }
    }

    /// `v` had a PLE exit on `p`, so it no longer counts as its filler.
    pub fn filler_spins(&mut self, v: VcpuId, p: PcpuId) {
        if let Some(turns) = &mut self.turns {
            if turns.pcpus[p].filler == v {
                turns.pcpus[p].filler = NONE;
            }
        }
    }

    /// `v` wakes up on `p`: the filler of `p` must leave.
    pub(super) fn filler_goes(&mut self, core: &mut Core, v: VcpuId, p: PcpuId) {
        let Some(turns) = &mut self.turns else { return };
        let filler = turns.pcpus[p].filler;
        if filler == NONE || filler == v {
            return;
        }
        turns.pcpus[p].filler = NONE;
        if self.current(p) == filler && self.must_leave(core, filler, p) {
            self.ask_reschedule(core, p);
        }
    }

    /// Resumes vCPUs that have waited for a turn for too long.
    pub fn end_parks(&mut self, core: &mut Core) {
        let mut next_ns = u64::MAX;
        for v in core.vcpus.ids() {
            let Some(turns) = &mut self.turns else { return };
            let Some(since_ns) = turns.vcpus[v].parked_ns else { continue };
            let end_ns = since_ns + PARK_MAX_NS;
            #[cfg(test)]
            if turns.has(Fault::WaitsOn) {
                continue;
            }
            if end_ns > core.now_ns {
                next_ns = next_ns.min(end_ns);
                continue;
            }
            turns.vcpus[v].late = true;
            turns.vms[turns.vcpus[v].vm].counts.parks_late += 1;
            self.unpark(core, v, None);
        }
        if next_ns != u64::MAX {
            core.events.arm(Event::ParkEnd, next_ns);
        }
    }
}
