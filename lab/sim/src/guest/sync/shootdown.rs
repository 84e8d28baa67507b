// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts to all siblings, and their answers.

use super::super::program::{Act, Draw, Step};
use super::super::state::{Doing, Guest};
use crate::core::{Cause, Core, Effect, State, Vm};
use crate::engine::VcpuId;

/// Whether it is going to halt with nothing to do, because its thread sleeps.
fn goes_idle(doing: Doing) -> bool {
    matches!(doing, Doing::HaltBlock | Doing::HaltBarrier)
}

impl Guest {
    /// `v`, running, interrupts every sibling that does not idle, and waits for all of them
    /// (smp_call_function_many). `lazy`: also, once, those that sleep and still have the program's
    /// memory; not again those that have dropped it and not run since (leave_mm() of
    /// arch/x86/mm/tlb.c). Returns whether it continues at once.
    pub fn shootdown(&mut self, core: &mut Core, v: VcpuId, lazy: bool) -> bool {
        let vcpu = &core.vcpus[v];
        let (vm, index) = (vcpu.vm, vcpu.index);
        let (first, count) = (core.vms[vm].first, core.vms[vm].vcpus);
        let (mut running, mut missing) = (0, 0);
        for u in first.and_next(count).filter(|u| *u != v) {
            if lazy && self.has_left_memory(core, u) {
                continue;
            }
            let sibling = &self.cpus[u];
            match core.vcpus[u].on.state {
                State::Running if goes_idle(sibling.run.doing) => {}
                State::Running => {
                    running += 1;
                    self.account(core, u);
                    core.interrupt(u);
                    self.touch(core, u);
                }
                State::Ready => {
                    missing += 1;
                    self.owe_answer(core, u, index);
                }
                // Not idle: the HLT of its lock ends, and it spins again.
                State::Halted if sibling.run.doing == Doing::HaltLock => {
                    missing += 1;
                    self.owe_answer(core, u, index);
                    self.note_waker(core, u, v);
                    self.spin_again(core, u);
                }
                State::Halted if lazy => {
                    missing += 1;
                    self.owe_answer(core, u, index);
                    self.note_waker(core, u, v);
                    self.wake(core, u);
                }
                State::Halted => {}
            }
        }
        if running + missing == 0 {
            return true;
        }
        core.send_ipis(v, running + missing);
        let vcpu = &mut self.cpus[v];
        vcpu.acks_missing = missing;
        vcpu.run.doing = Doing::SpinAck;
        vcpu.run.remaining_ns = core.prices.interrupt_ns.max(1);
        core.vcpus[v].pauses.spun_ns = 0;
        false
    }

    /// Whether the idle `u` has dropped the program's memory. If it is idle, it drops it now.
    fn has_left_memory(&mut self, core: &mut Core, u: VcpuId) -> bool {
        let sibling = &mut self.cpus[u];
        let off =
            core.vcpus[u].on.state != State::Running && core.vcpus[u].on.off_cause == Cause::Idle;
        let idle = off || sibling.run.doing == Doing::Poll;
        idle && !std::mem::take(&mut sibling.in_mask) && !sibling.owes_acks
    }

    /// shootdown() one by one: one interrupt after the other, each an exit of `v`; each sibling
    /// answers when it has handled its own. Returns whether `v` continues at once.
    pub fn shootdown_one_by_one(&mut self, core: &mut Core, v: VcpuId) -> bool {
        let vcpu = &mut self.cpus[v];
        vcpu.acks_missing = 0;
        vcpu.next_sibling = 0;
        self.send_next_ipi(core, v)
    }

    /// The interrupt of `v` has been sent. Sends the next one, or waits for answers if it was the
    /// last.
    pub fn ipi_is_sent(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &mut self.cpus[v];
        let u = core.vms[core.vcpus[v].vm].first + vcpu.next_sibling;
        vcpu.next_sibling += 1;
        if self.is_asked_to_flush(core, v, u) {
            self.ask_to_flush(core, v, u);
        }
        if self.send_next_ipi(core, v) {
            let vcpu = &mut self.cpus[v];
            vcpu.run.doing = Doing::SpinAck;
            core.vcpus[v].pauses.spun_ns = 0;
            vcpu.run.remaining_ns = core.prices.handoff_ns.max(1);
        }
    }

    /// `v` writes to its APIC for the next of its siblings. Returns whether none is left.
    fn send_next_ipi(&mut self, core: &mut Core, v: VcpuId) -> bool {
        let next_sibling = self.cpus[v].next_sibling;
        let Vm { first, vcpus, .. } = core.vms[core.vcpus[v].vm];
        let next = (next_sibling..vcpus).find(|&i| self.is_asked_to_flush(core, v, first + i));
        if let Some(next) = next {
            let vcpu = &mut self.cpus[v];
            vcpu.run.doing = Doing::SendIpis;
            vcpu.run.remaining_ns = 0;
            vcpu.next_sibling = next;
            core.send_ipis(v, 1);
        }
        next.is_none()
    }

    /// Of the `shootdown` step that `v` is in: whether it is lazy, and how long its handlers work.
    fn shootdown_step(&self, v: VcpuId) -> (bool, Draw) {
        match self.steps[self.cpus[v].run.pc as usize - 1].step {
            Step::Act(Act::Shootdown { lazy, handler }) => (lazy, handler),
            step @ (Step::Work(_) | Step::Act(_)) => {
                unreachable!("vCPU {v} sends interrupts in {step:?}")
            }
        }
    }

    fn is_asked_to_flush(&self, core: &Core, v: VcpuId, u: VcpuId) -> bool {
        let vcpu = &self.cpus[u];
        match core.vcpus[u].on.state {
            State::Running => u != v && !goes_idle(vcpu.run.doing),
            State::Ready => true,
            // Not idle: it waits for a lock.
            State::Halted if vcpu.run.doing == Doing::HaltLock => true,
            State::Halted => vcpu.in_mask && self.shootdown_step(v).0,
        }
    }

    /// The interrupt of `v` reaches `u`. If another one is pending there, it takes only one.
    fn ask_to_flush(&mut self, core: &mut Core, v: VcpuId, u: VcpuId) {
        self.account(core, u);
        core.stop_halt_poll(u);
        if !self.cpus[u].owes_acks {
            let (_, handler) = self.shootdown_step(v);
            let handler_cycles = u64::from(self.draw(v, handler)) * core.prices.iteration_cycles;
            if core.vcpus[u].on.state == State::Running {
                self.account(core, u);
                core.interrupt(u);
            } else {
                core.charge(u, core.prices.interrupt_ns, Cause::Ipi);
            }
            core.charge(u, core.clock.ns(handler_cycles), Cause::Ipi);
        }
        self.cpus[v].acks_missing += 1;
        let index = core.vcpus[v].index;
        self.owe_answer(core, u, index);
        match core.vcpus[u].on.state {
            State::Running => self.touch(core, u),
            State::Ready => {}
            State::Halted if self.cpus[u].run.doing == Doing::HaltLock => {
                self.note_waker(core, u, v);
                self.spin_again(core, u);
            }
            State::Halted => {
                self.cpus[u].in_mask = false;
                self.note_waker(core, u, v);
                self.wake(core, u);
            }
        }
    }

    fn owe_answer(&mut self, core: &mut Core, u: VcpuId, sender: u32) {
        let vcpu = &mut core.vcpus[u];
        self.cpus[u].owes_acks = true;
        let vm = &mut self.vms[vcpu.vm];
        vm.acks[vcpu.index as usize].push(sender);
        // Without APICv, KVM does not check for pending interrupts.
        core.effects.push(Effect::InterruptPending(u, core.model.apicv));
    }

    /// `u`, which owes answers, gets or loses its pCPU: accounts for the vCPUs that wait for it
    /// before.
    pub fn account_askers(&mut self, core: &mut Core, u: VcpuId) {
        let vcpu = &core.vcpus[u];
        let (vm, index) = (vcpu.vm, vcpu.index as usize);
        for i in 0..self.vms[vm].acks[index].len() {
            let asker = core.vms[vm].first + self.vms[vm].acks[index][i];
            self.account(core, asker);
        }
    }

    /// Whether any of the vCPUs for which `v` waits has no pCPU.
    pub fn awaits_preempted(&self, core: &Core, v: VcpuId) -> bool {
        let vcpu = &core.vcpus[v];
        let vm = &core.vms[vcpu.vm];
        vm.first.and_all().zip(&self.vms[vcpu.vm].acks).any(|(u, askers)| {
            core.vcpus[u].on.state != State::Running && askers.contains(&vcpu.index)
        })
    }

    /// `u` runs again, or its handler has ended: it answers the vCPUs that wait for it.
    pub fn answer(&mut self, core: &mut Core, u: VcpuId) {
        let vcpu = &mut core.vcpus[u];
        self.cpus[u].owes_acks = false;
        let (vm, index) = (vcpu.vm, vcpu.index as usize);
        core.effects.push(Effect::InterruptPending(u, false));
        let late = self.vms[vm].handles_ipis;
        if !late {
            core.charge(u, core.prices.interrupt_ns, Cause::Ipi);
        }
        while let Some(sender) = self.vms[vm].acks[index].pop() {
            let v = core.vms[vm].first + sender;
            self.account(core, v);
            let vcpu = &mut self.cpus[v];
            vcpu.acks_missing -= 1;
            if vcpu.acks_missing == 0 {
                let seen_ns = if late { core.prices.handoff_ns } else { core.prices.interrupt_ns };
                vcpu.run.remaining_ns = seen_ns.max(1);
                self.touch(core, v);
            }
        }
    }
}
