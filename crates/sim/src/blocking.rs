// SPDX-License-Identifier: MIT OR Apache-2.0
//! What guests do to each other besides spin-locks: mutexes whose waiters sleep, interrupts to all
//! siblings, data shared through caches.

use crate::machine::Sim;
use crate::sched::NONE;
use crate::state::{Cause, Doing, State};
use std::collections::VecDeque;

/// A lock whose waiters sleep, as glibc's: a released one may be taken by whoever comes first, the
/// longest sleeper is woken to try again.
#[derive(Debug, Clone)]
pub struct Mutex {
    owner: u32,
    waiters: VecDeque<u32>,
}

impl Mutex {
    pub fn free(threads: u32) -> Mutex {
        Mutex { owner: NONE, waiters: VecDeque::with_capacity(threads as usize) }
    }
}

impl Sim {
    /// Whether the thread on `v` has the mutex at once; else it sleeps, and tries again when it is
    /// woken: its `pc` must be the step's own.
    pub(crate) fn mutex(&mut self, v: u32, number: u32) -> bool {
        let vm = self.vcpus[v as usize].vm as usize;
        let t = self.vcpus[v as usize].thread;
        let mutex = &mut self.vms[vm].mutexes[number as usize];
        if mutex.owner == NONE {
            mutex.owner = t;
            self.vcpus[v as usize].acquisitions += 1;
            self.vms[vm].wait_hist[self.lock_bucket] += 1;
            return true;
        }
        mutex.waiters.push_back(t);
        let vcpu = &mut self.vcpus[v as usize];
        vcpu.taken = true;
        vcpu.doing = Doing::Work;
        vcpu.remaining_ns = self.guest_switch_ns.max(self.unit_ns);
        self.park(v);
        false
    }

    pub(crate) fn mutex_unlock(&mut self, v: u32, number: u32) {
        let vm = self.vcpus[v as usize].vm as usize;
        let mutex = &mut self.vms[vm].mutexes[number as usize];
        mutex.owner = NONE;
        if let Some(t) = mutex.waiters.pop_front() {
            self.wake_thread(Some(v), t);
        }
    }

    /// `by` writes to its APIC for each of `count` siblings.
    pub(crate) fn send_ipis(&mut self, by: u32, count: u32) {
        self.vms[self.vcpus[by as usize].vm as usize].apic_exits += u64::from(count);
        self.charge(by, self.ipi_ns * u64::from(count), Cause::Ipi);
    }

    /// `v`, running, interrupts every sibling that does not sleep, and waits for all of them
    /// (smp_call_function_many). `lazy`: once also those that sleep with the program's memory still
    /// theirs, but nobody again that has given it up and not run since (leave_mm() of
    /// arch/x86/mm/tlb.c). Whether it goes on at once.
    pub(crate) fn shootdown(&mut self, v: u32, lazy: bool) -> bool {
        let vcpu = &self.vcpus[v as usize];
        let (vm, index) = (vcpu.vm as usize, vcpu.index);
        let (first, count) = (self.vms[vm].first, self.vms[vm].vcpus);
        let (mut running, mut missing) = (0, 0);
        for u in (first..first + count).filter(|u| *u != v) {
            let sibling = &mut self.vcpus[u as usize];
            let off = sibling.state != State::Running && sibling.off_cause == Cause::Idle;
            let idle = off || sibling.doing == Doing::Poll;
            if lazy && idle && !std::mem::take(&mut sibling.in_mask) && !sibling.owes_acks {
                continue;
            }
            match sibling.state {
                State::Running if sibling.doing == Doing::HaltBlock => {}
                State::Running => {
                    running += 1;
                    self.interrupt(u);
                    self.rearm(u);
                }
                State::Ready => {
                    missing += 1;
                    sibling.owes_acks = true;
                    let acks = &mut self.vms[vm].acks;
                    acks[(u - first) as usize].push(index);
                }
                State::Halted if lazy => {
                    missing += 1;
                    sibling.owes_acks = true;
                    let acks = &mut self.vms[vm].acks;
                    acks[(u - first) as usize].push(index);
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
        let vcpu = &mut self.vcpus[v as usize];
        vcpu.acks_missing = missing;
        vcpu.doing = Doing::SpinAck;
        vcpu.remaining_ns = self.interrupt_ns.max(1);
        vcpu.spun_ns = 0;
        false
    }

    /// `u` runs again: it answers those who wait for it.
    pub(crate) fn answer(&mut self, u: u32) {
        let vcpu = &mut self.vcpus[u as usize];
        vcpu.owes_acks = false;
        let (vm, index) = (vcpu.vm as usize, vcpu.index as usize);
        self.charge(u, self.interrupt_ns, Cause::Ipi);
        while let Some(sender) = self.vms[vm].acks[index].pop() {
            let v = self.vms[vm].first + sender;
            self.account(v);
            let vcpu = &mut self.vcpus[v as usize];
            vcpu.acks_missing -= 1;
            if vcpu.acks_missing == 0 {
                vcpu.remaining_ns = self.interrupt_ns.max(1);
                self.rearm(v);
            }
        }
    }

    /// Time to read `lines` cache lines that the vCPU before `v` wrote, and how much of it is for
    /// their coming from another last-level cache, ns.
    pub(crate) fn share_ns(&self, v: u32, lines: u64) -> (u64, u64) {
        let vcpu = &self.vcpus[v as usize];
        let vm = &self.vms[vcpu.vm as usize];
        let writer = vm.first + (vcpu.index + vm.vcpus - 1) % vm.vcpus;
        let near = self.clock.ns(lines * u64::from(self.host.costs.share_near_cycles));
        if self.domain(vcpu.pcpu) == self.domain(self.vcpus[writer as usize].pcpu) {
            return (near, 0);
        }
        let far = self.clock.ns(lines * u64::from(self.host.costs.share_far_cycles)).max(near);
        (far, far - near)
    }

    /// Which last-level cache a pCPU has.
    pub(crate) fn domain(&self, p: u32) -> u32 {
        self.host.llc_pcpus.map_or(0, |size| p / size.max(1))
    }
}
