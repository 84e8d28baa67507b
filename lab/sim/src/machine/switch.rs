// SPDX-License-Identifier: MIT OR Apache-2.0
//! A vCPU gets its pCPU, loses it, sleeps or wakes up: the scheduler decides, and every part is
//! notified.

use super::Sim;
use crate::core::{Cause, State};
use crate::engine::{Event, PcpuId, VcpuId};

impl Sim {
    /// schedule() on `p`, whose times are updated and whose vCPU, if any, is accounted for.
    pub(super) fn schedule(&mut self, p: PcpuId) {
        self.host.bill(&mut self.core, p);
        let before = self.host.current(p);
        if before != VcpuId::NONE {
            self.core.vcpus[before].exit.need_resched = false;
        }
        let v = self.host.choose(&mut self.core, p);
        if v == before && v != VcpuId::NONE {
            return;
        }
        if before != VcpuId::NONE {
            self.switch_out(before, v != VcpuId::NONE && self.kvm.is_picked_on(v, p));
        }
        match (self.core.pcpus[p].idle, v == VcpuId::NONE) {
            (false, true) => self.begin_idling(p),
            (true, false) => self.end_idling(p, v),
            (true, true) | (false, false) => {}
        }
        if v != VcpuId::NONE {
            self.switch_in(p, v);
        }
    }

    fn begin_idling(&mut self, p: PcpuId) {
        let now_ns = self.core.now_ns;
        self.core.pcpus[p].begin_idling(now_ns);
        self.core_changes(p);
        self.core.events.cancel(Event::ActionEnd(p));
        self.core.events.cancel(Event::Tick(p));
        self.host.idles(&mut self.core, p);
    }

    /// `v` is going to run on `p`, which idles.
    fn end_idling(&mut self, p: PcpuId, v: VcpuId) {
        let now_ns = self.core.now_ns;
        let expected_ns = self.core.pcpus[p].end_idling(now_ns);
        self.core_changes(p);
        self.host.arm_tick(&mut self.core, p);
        self.core.charge(v, self.core.model.idle_exit_ns(expected_ns), Cause::Idle);
    }

    /// `p` begins or ends idling: the vCPU on the other thread of its core gets the core for
    /// itself, or shares it.
    fn core_changes(&mut self, p: PcpuId) {
        let Some(sibling) = self.core.sibling(p) else { return };
        let v = self.host.current(sibling);
        if v == VcpuId::NONE || self.core.vcpus[v].on.state != State::Running {
            return;
        }
        self.guest.account(&mut self.core, v);
        self.core.vcpus[v].shares_core = !self.core.pcpus[p].idle;
        self.guest.rearm(&mut self.core, v);
    }

    /// `v` leaves its pCPU although it could run. `displaced`: for the target of a directed yield.
    fn switch_out(&mut self, v: VcpuId, displaced: bool) {
        self.guest.account_for_switch(&mut self.core, v);
        self.core.enter(v, State::Ready);
        let vcpu = &mut self.core.vcpus[v];
        vcpu.exit.undecided = false;
        vcpu.on.off_cause = if vcpu.exit.in_ple_exit { Cause::Spin } else { Cause::Other };
        self.host.preempted(&self.core, v);
        self.guest.note_off(&self.core, v);
        self.guest.note_wanting(&self.core, v, true);
        self.kvm.preempted(&self.core, v, displaced, self.guest.is_in_user(v));
    }

    fn switch_in(&mut self, p: PcpuId, v: VcpuId) {
        self.guest.account_for_switch(&mut self.core, v);
        self.core.pcpus[p].switches += 1;
        self.host.runs(&self.core, p, v);
        let is_shared = self.core.is_core_shared(p);
        self.core.enter(v, State::Running);
        let vcpu = &mut self.core.vcpus[v];
        vcpu.shares_core = is_shared;
        let from = std::mem::replace(&mut vcpu.on.pcpu, p);
        vcpu.ledger.switch_ns = self.core.prices.switch_ns;
        vcpu.ledger.switch_cause = vcpu.on.off_cause;
        vcpu.pauses.spun_ns = 0;
        self.kvm.runs(&self.core, p, v);
        self.guest.note_on(&self.core, v);
        self.guest.note_wanting(&self.core, v, false);
        if self.core.domain(from) != self.core.domain(p) {
            self.core.charge(v, self.core.prices.migration_ns, Cause::Migration);
        }
        self.guest.answer_at_once(&mut self.core, v);
        self.kvm.enters(&mut self.core, v);
        self.guest.notice(&mut self.core, v);
        self.apply_effects();
        self.guest.rearm(&mut self.core, v);
    }

    /// `v` halts: its pCPU is free.
    pub(super) fn sleep(&mut self, p: PcpuId, v: VcpuId) {
        self.host.sleep(&mut self.core, p);
        self.core.enter(v, State::Halted);
        let vcpu = &mut self.core.vcpus[v];
        vcpu.exit.need_resched = false;
        vcpu.on.off_cause = Cause::Idle;
        self.kvm.sleeps(&self.core, v);
        self.guest.note_off(&self.core, v);
        self.host.slept(&mut self.core, v);
        self.schedule(p);
    }

    /// `v`, asleep, wants to run.
    pub(super) fn wake(&mut self, v: VcpuId) {
        self.guest.account(&mut self.core, v);
        self.core.enter(v, State::Ready);
        let vm = self.core.vcpus[v].vm;
        self.core.vms[vm].apic_exits += u64::from(!self.core.model.apicv);
        self.core.charge(v, self.core.prices.wake_ns, Cause::Idle);
        self.guest.note_wanting(&self.core, v, true);
        self.kvm.wakes(&self.core, v);
        self.host.wakes(&mut self.core, v);
    }

    /// `v`, new, wants to run.
    pub(super) fn start(&mut self, v: VcpuId) {
        self.guest.account(&mut self.core, v);
        self.core.enter(v, State::Ready);
        self.kvm.starts(&self.core, v);
        self.guest.note_wanting(&self.core, v, true);
        self.host.starts(&mut self.core, v);
    }

    /// Moves `v` to another pCPU, permanently if it is pinned.
    pub(super) fn migrate(&mut self, v: VcpuId, to: PcpuId) {
        let from = self.core.vcpus[v].on.pcpu;
        if from == to {
            return;
        }
        if self.host.is_out(v) {
            self.core.vcpus[v].on.pcpu = to;
            return;
        }
        self.host.bill(&mut self.core, from);
        self.host.bill(&mut self.core, to);
        let ran = self.core.vcpus[v].on.state == State::Running;
        if ran {
            self.switch_out(v, false);
            self.host.put_back(from);
        }
        self.host.change_queue(&mut self.core, v, to);
        if ran {
            self.schedule(from);
        }
    }
}
