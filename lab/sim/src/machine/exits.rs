// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exits: PLE has ended a pause loop, or a pCPU was asked to reschedule. KVM asks for yields, and
//! the scheduler reports the outcome of each.

use super::Sim;
use crate::core::{Cause, State};
use crate::engine::{PcpuId, VcpuId};
use crate::kvm::{Ask, Spinner};

impl Sim {
    /// A PLE exit of `v` on `p`.
    pub(super) fn ple_exit(&mut self, p: PcpuId, v: VcpuId) {
        self.kvm.ple_exit(&mut self.core, v);
        self.host.filler_spins(v, p);
        let costs = &self.core.model.costs;
        let (all, until_decided) = (costs.ple_exit_cycles, costs.decide_cycles);
        if self.host.yields_to_nobody() {
            self.kvm.charge_exit(&mut self.core, v, all);
            self.kvm.epoch_report(&self.core, v);
            self.host.watch_ple_exit(&self.core, v, self.kvm.window_cycles(v));
            self.kvm.window_update(&mut self.core, v, true);
        } else if until_decided > 0 {
            self.kvm.charge_exit(&mut self.core, v, until_decided);
            self.core.vcpus[v].exit.undecided = true;
        } else {
            self.decide(p, v);
        }
    }

    /// Chooses the target of the PLE exit of `v` on `p`, as of now.
    fn decide(&mut self, p: PcpuId, v: VcpuId) {
        let guest = &self.guest;
        let for_lock = !guest.waits_for_answers(v) && guest.waits_for_lock(v);
        let spinner = Spinner { for_lock, in_user: guest.is_in_user(v) };
        let mut pick =
            self.kvm.begin_pick(&mut self.core, v, spinner, |core, u| guest.awaits(core, v, u));
        let mut boosted = None;
        let mut gives_way = false;
        let mut asks_ns = self.core.now_ns;
        loop {
            match self.kvm.next_pick(&mut self.core, v, &mut pick) {
                Ask::YieldTo(target) => {
                    if self.host.locks_queues(&self.core, p, target) {
                        let to = self.core.vcpus[target].on.pcpu;
                        let wait_ns = self.core.lock_queues(p, to, asks_ns);
                        self.kvm.charge_wait(&mut self.core, v, wait_ns);
                        asks_ns += wait_ns;
                    }
                    asks_ns += self.core.prices.yield_ns;
                    let outcome = self.host.yield_to(&mut self.core, p, target);
                    if !self.kvm.tries_another(&self.core, v, &mut pick, target, outcome) {
                        boosted = Some(target);
                        break;
                    }
                }
                Ask::GiveWay => {
                    self.host.yield_current(&mut self.core, p);
                    gives_way = true;
                    break;
                }
                Ask::Nobody => break,
            }
        }
        self.kvm.end_pick(&mut self.core, v, pick, boosted);
        // The turn may have ended; the kernel checks this on the way back to the guest.
        if boosted.is_some() || gives_way || self.host.must_leave(&self.core, v, p) {
            self.leave(p, v);
        }
        if self.core.vcpus[v].on.state == State::Running {
            self.kvm.window_update(&mut self.core, v, true);
        }
    }

    /// Calls schedule() inside the exit of `v`. If no other vCPU is to run, `v` continues.
    fn leave(&mut self, p: PcpuId, v: VcpuId) {
        self.schedule(p);
        if self.host.current(p) == v {
            self.kvm.end_search(&self.core, v);
        } else {
            // The switch back is part of handling the exit.
            let cycles = self.core.model.costs.switch_cycles;
            self.kvm.count_switching(&self.core, v, cycles);
        }
    }

    /// The host time before a decision about `v`, running on `p`, has passed.
    pub(super) fn handle_exit(&mut self, p: PcpuId, v: VcpuId) {
        let exit = &mut self.core.vcpus[v].exit;
        if exit.undecided {
            // need_resched stays set: the kernel checks it on the way to the guest.
            self.decide(p, v);
        } else {
            exit.need_resched = false;
            self.schedule(p);
        }
        if self.host.current(p) == v {
            self.guest.rearm(&mut self.core, v);
        }
    }

    /// A task of the host takes `p` from the running vCPU, and sleeps again. The scheduler then
    /// chooses as if `p` had been idle, and the former vCPU counts as scheduled out.
    pub(super) fn host_task(&mut self, p: PcpuId) {
        let task_ns = self.host.host_task(&mut self.core, p);
        let v = self.host.current(p);
        if v == VcpuId::NONE {
            return;
        }
        self.guest.account(&mut self.core, v);
        if self.core.vcpus[v].exit.halt_polls {
            self.core.stop_halt_poll(v);
            self.sleep(p, v);
            return;
        }
        let prices = &self.core.prices;
        let ns = task_ns + prices.interrupt_ns + prices.switch_ns;
        self.core.charge(v, ns, Cause::Other);
        self.core.vcpus[v].pauses.spun_ns = 0;
        self.core.vcpus[v].exit.need_resched = true;
        self.kvm.window_reset(&mut self.core, v);
        self.guest.rearm(&mut self.core, v);
    }

    /// `p` was asked to reschedule.
    pub(super) fn reschedule(&mut self, p: PcpuId) {
        let v = self.host.current(p);
        if v != VcpuId::NONE {
            self.guest.account(&mut self.core, v);
            if self.core.vcpus[v].exit.halt_polls {
                self.core.stop_halt_poll(v);
                self.sleep(p, v);
                return;
            }
            // A vCPU outside of its guest sees the request on its way in.
            let vcpu = &self.core.vcpus[v];
            let ns = match vcpu.ledger.host_ns() == 0 && !vcpu.exit.is_pending() {
                true => self.core.prices.interrupt_ns,
                false => self.core.prices.kernel_interrupt_ns,
            };
            self.core.charge(v, ns, Cause::Other);
            self.core.vcpus[v].pauses.spun_ns = 0;
            self.host.bill(&mut self.core, p);
            if self.core.times_handling() {
                self.core.vcpus[v].exit.need_resched = true;
                self.guest.rearm(&mut self.core, v);
                return;
            }
        }
        self.schedule(p);
        if v != VcpuId::NONE && self.host.current(p) == v {
            self.guest.rearm(&mut self.core, v);
        }
    }
}
