// SPDX-License-Identifier: MIT OR Apache-2.0
//! What guests do to each other besides spin-locks: mutexes whose waiters sleep, interrupts to all
//! siblings, data shared through caches.

use crate::engine::{PcpuId, ThreadId, VcpuId};
use crate::machine::Sim;
use crate::program::{Act, Draw, Step};
use crate::state::{Cause, Doing, State, Vcpu, Vm};
use std::collections::VecDeque;

/// A lock whose waiters sleep, as glibc's: a released one may be taken by whoever comes first, the
/// longest sleeper is woken to try again.
#[derive(Debug, Clone)]
pub struct Mutex {
    owner: ThreadId,
    waiters: VecDeque<ThreadId>,
}

impl Mutex {
    pub fn free(threads: u32) -> Mutex {
        Mutex { owner: ThreadId::NONE, waiters: VecDeque::with_capacity(threads as usize) }
    }
}

/// On its way to HLT with nothing to do: its thread sleeps.
fn goes_idle(doing: Doing) -> bool {
    matches!(doing, Doing::HaltBlock | Doing::HaltBarrier)
}

impl Sim {
    /// Whether the thread on `v` has the mutex at once; else it sleeps, and tries again when it is
    /// woken.
    pub(crate) fn mutex(&mut self, v: VcpuId, number: u32) -> bool {
        let vm = self.vcpus[v].vm;
        let t = self.vcpus[v].thread;
        let mutex = &mut self.vms[vm].mutexes[number as usize];
        if mutex.owner == ThreadId::NONE {
            mutex.owner = t;
            self.vcpus[v].acquisitions += 1;
            self.vms[vm].wait_hist[self.lock_bucket] += 1;
            return true;
        }
        mutex.waiters.push_back(t);
        let vcpu = &mut self.vcpus[v];
        vcpu.pc -= 1;
        vcpu.taken = true;
        vcpu.doing = Doing::Work;
        vcpu.remaining_ns = self.guest_switch_ns.max(self.unit_ns);
        self.park(v);
        false
    }

    pub(crate) fn mutex_unlock(&mut self, v: VcpuId, number: u32) {
        let vm = self.vcpus[v].vm;
        let mutex = &mut self.vms[vm].mutexes[number as usize];
        mutex.owner = ThreadId::NONE;
        if let Some(t) = mutex.waiters.pop_front() {
            self.wake_thread(Some(v), t);
        }
    }

    /// `by` writes to its APIC for each of `count` siblings.
    pub(crate) fn send_ipis(&mut self, by: VcpuId, count: u32) {
        self.vms[self.vcpus[by].vm].apic_exits += u64::from(count);
        self.charge(by, self.ipi_ns * u64::from(count), Cause::Ipi);
    }

    /// `v`, running, interrupts every sibling that does not idle, and waits for all of them
    /// (smp_call_function_many). `lazy`: once also those that sleep with the program's memory still
    /// theirs, but nobody again that has given it up and not run since (leave_mm() of
    /// arch/x86/mm/tlb.c). Whether it goes on at once.
    pub(crate) fn shootdown(&mut self, v: VcpuId, lazy: bool) -> bool {
        let vcpu = &self.vcpus[v];
        let (vm, index) = (vcpu.vm, vcpu.index);
        let (first, count) = (self.vms[vm].first, self.vms[vm].vcpus);
        let (mut running, mut missing) = (0, 0);
        for u in first.and_next(count).filter(|u| *u != v) {
            if lazy && self.has_left_memory(u) {
                continue;
            }
            let sibling = &self.vcpus[u];
            match sibling.state {
                State::Running if goes_idle(sibling.doing) => {}
                State::Running => {
                    running += 1;
                    self.interrupt(u);
                    self.rearm(u);
                }
                State::Ready => {
                    missing += 1;
                    self.owe_answer(u, index);
                }
                // Not idle: its lock's HLT ends, and it spins again.
                State::Halted if sibling.doing == Doing::HaltLock => {
                    missing += 1;
                    self.owe_answer(u, index);
                    self.note_waker(u, v);
                    self.spin_again(u);
                }
                State::Halted if lazy => {
                    missing += 1;
                    self.owe_answer(u, index);
                    self.note_waker(u, v);
                    self.wake(u);
                }
                State::Halted => {}
            }
        }
        if running + missing == 0 {
            return true;
        }
        self.send_ipis(v, running + missing);
        let vcpu = &mut self.vcpus[v];
        vcpu.acks_missing = missing;
        vcpu.doing = Doing::SpinAck;
        vcpu.remaining_ns = self.interrupt_ns.max(1);
        vcpu.spun_ns = 0;
        false
    }

    /// Whether the idle `u` has given the program's memory up; it has now, if it is idle.
    fn has_left_memory(&mut self, u: VcpuId) -> bool {
        let sibling = &mut self.vcpus[u];
        let off = sibling.state != State::Running && sibling.off_cause == Cause::Idle;
        let idle = off || sibling.doing == Doing::Poll;
        idle && !std::mem::take(&mut sibling.in_mask) && !sibling.owes_acks
    }

    /// The same in turn: one interrupt after the other, each an exit of `v`, and each sibling answers
    /// when it has handled its own. Whether `v` goes on at once.
    pub(crate) fn shootdown_in_turn(&mut self, v: VcpuId) -> bool {
        let vcpu = &mut self.vcpus[v];
        vcpu.acks_missing = 0;
        vcpu.next_sibling = 0;
        self.send_next_ipi(v)
    }

    /// The interrupt of `v` has been sent. The next one, if there is one; else it waits for answers.
    pub(crate) fn ipi_is_sent(&mut self, v: VcpuId) {
        let vcpu = &mut self.vcpus[v];
        let u = self.vms[vcpu.vm].first + vcpu.next_sibling;
        vcpu.next_sibling += 1;
        if self.is_asked_to_flush(v, u) {
            self.ask_to_flush(v, u);
        }
        if self.send_next_ipi(v) {
            let vcpu = &mut self.vcpus[v];
            vcpu.doing = Doing::SpinAck;
            vcpu.spun_ns = 0;
            vcpu.remaining_ns = self.handoff_ns.max(1);
        }
    }

    /// `v` writes to its APIC for the next of its siblings. Whether there is none.
    fn send_next_ipi(&mut self, v: VcpuId) -> bool {
        let Vcpu { vm, next_sibling, .. } = self.vcpus[v];
        let Vm { first, vcpus, .. } = self.vms[vm];
        let next = (next_sibling..vcpus).find(|&i| self.is_asked_to_flush(v, first + i));
        if let Some(next) = next {
            let vcpu = &mut self.vcpus[v];
            vcpu.doing = Doing::SendIpis;
            vcpu.remaining_ns = 0;
            vcpu.next_sibling = next;
            self.send_ipis(v, 1);
        }
        next.is_none()
    }

    /// Of the `shootdown` step that `v` is in: whether it is lazy, and how long its handlers work.
    fn shootdown_step(&self, v: VcpuId) -> (bool, Draw) {
        match self.steps[self.vcpus[v].pc as usize - 1].step {
            Step::Act(Act::Shootdown { lazy, handler }) => (lazy, handler),
            step => unreachable!("vCPU {v} sends interrupts in {step:?}"),
        }
    }

    fn is_asked_to_flush(&self, v: VcpuId, u: VcpuId) -> bool {
        let vcpu = &self.vcpus[u];
        match vcpu.state {
            State::Running => u != v && !goes_idle(vcpu.doing),
            State::Ready => true,
            // Not idle: it waits for a lock.
            State::Halted if vcpu.doing == Doing::HaltLock => true,
            State::Halted => vcpu.in_mask && self.shootdown_step(v).0,
        }
    }

    /// The interrupt of `v` comes to `u`. One that has another before it still takes no second.
    fn ask_to_flush(&mut self, v: VcpuId, u: VcpuId) {
        self.account(u);
        self.stop_halt_poll(u);
        if !self.vcpus[u].owes_acks {
            let (_, handler) = self.shootdown_step(v);
            let handler_cycles = u64::from(self.draw(v, handler)) * self.iteration_cycles;
            if self.vcpus[u].state == State::Running {
                self.interrupt(u);
            } else {
                self.charge(u, self.interrupt_ns, Cause::Ipi);
            }
            self.charge(u, self.clock.ns(handler_cycles), Cause::Ipi);
        }
        self.vcpus[v].acks_missing += 1;
        let index = self.vcpus[v].index;
        self.owe_answer(u, index);
        match self.vcpus[u].state {
            State::Running => self.rearm(u),
            State::Ready => {}
            State::Halted if self.vcpus[u].doing == Doing::HaltLock => {
                self.note_waker(u, v);
                self.spin_again(u);
            }
            State::Halted => {
                self.vcpus[u].in_mask = false;
                self.note_waker(u, v);
                self.wake(u);
            }
        }
    }

    fn owe_answer(&mut self, u: VcpuId, sender: u32) {
        let vcpu = &mut self.vcpus[u];
        vcpu.owes_acks = true;
        let vm = &mut self.vms[vcpu.vm];
        vm.acks[vcpu.index as usize].push(sender);
        // Without APICv KVM does not look whether there is one.
        vm.stock[vcpu.index as usize].interrupt_pending = u8::from(self.host.apicv);
    }

    /// `u`, which owes answers, gets or loses its pCPU: who waits for it is accounted for before.
    pub(crate) fn account_askers(&mut self, u: VcpuId) {
        let vcpu = &self.vcpus[u];
        let (vm, index) = (vcpu.vm, vcpu.index as usize);
        for i in 0..self.vms[vm].acks[index].len() {
            let asker = self.vms[vm].first + self.vms[vm].acks[index][i];
            self.account(asker);
        }
    }

    /// Whether any of those `v` waits for is off its pCPU.
    pub(crate) fn awaits_preempted(&self, v: VcpuId) -> bool {
        let vcpu = &self.vcpus[v];
        let vm = &self.vms[vcpu.vm];
        vm.first.and_all().zip(&vm.acks).any(|(u, askers)| {
            self.vcpus[u].state != State::Running && askers.contains(&vcpu.index)
        })
    }

    /// `u` runs again, or is through with its handler: it answers those who wait for it.
    pub(crate) fn answer(&mut self, u: VcpuId) {
        let vcpu = &mut self.vcpus[u];
        vcpu.owes_acks = false;
        let (vm, index) = (vcpu.vm, vcpu.index as usize);
        self.vms[vm].stock[index].interrupt_pending = 0;
        let late = self.vms[vm].in_turn;
        if !late {
            self.charge(u, self.interrupt_ns, Cause::Ipi);
        }
        while let Some(sender) = self.vms[vm].acks[index].pop() {
            let v = self.vms[vm].first + sender;
            self.account(v);
            let vcpu = &mut self.vcpus[v];
            vcpu.acks_missing -= 1;
            if vcpu.acks_missing == 0 {
                let seen_ns = if late { self.handoff_ns } else { self.interrupt_ns };
                vcpu.remaining_ns = seen_ns.max(1);
                self.rearm(v);
            }
        }
    }

    /// Time to read `lines` cache lines that the vCPU before `v` wrote, and how much of it is for
    /// their coming from another last-level cache, ns.
    pub(crate) fn share_ns(&self, v: VcpuId, lines: u64) -> (u64, u64) {
        let vcpu = &self.vcpus[v];
        let vm = &self.vms[vcpu.vm];
        let writer = vm.first + (vcpu.index + vm.vcpus - 1) % vm.vcpus;
        let near = self.clock.ns(lines * u64::from(self.host.costs.share_near_cycles));
        if self.domain(vcpu.pcpu) == self.domain(self.vcpus[writer].pcpu) {
            return (near, 0);
        }
        let far = self.clock.ns(lines * u64::from(self.host.costs.share_far_cycles)).max(near);
        (far, far - near)
    }

    /// Which last-level cache a pCPU has.
    pub(crate) fn domain(&self, p: PcpuId) -> u32 {
        self.host.llc_pcpus.map_or(0, |size| p.0 / size.max(1))
    }
}
