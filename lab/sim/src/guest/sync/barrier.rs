// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barriers: all threads of a VM wait for each other, spinning, asleep, or at a condition variable
//! whose sleepers wake each other.

use super::super::program::Meet;
use super::super::state::{Doing, Guest};
use crate::core::{Cause, Core, State};
use crate::engine::VcpuId;

impl Guest {
    /// `v`, running, arrives at a barrier. Returns whether it continues at once.
    pub fn barrier(&mut self, core: &mut Core, v: VcpuId, meet: Meet) -> bool {
        let (pauses, user, wakes_each_other) = match meet {
            Meet::Sleep { pauses } => (Some(pauses), false, false),
            Meet::Spin => (None, false, false),
            Meet::User { pauses } => (pauses, true, false),
            Meet::Cond { pauses, user } => (Some(pauses), user, true),
        };
        let pauses = pauses.map(|draw| self.draw(v, draw));
        (self.cpus[v].run.user, self.cpus[v].wakes_each_other) = (user, wakes_each_other);
        let goes_on = self.arrive(core, v, pauses);
        self.cpus[v].run.user &= !goes_on;
        goes_on
    }

    /// `v`, running, has arrived. Returns whether it continues at once.
    fn arrive(&mut self, core: &mut Core, v: VcpuId, pauses: Option<u32>) -> bool {
        let vm = core.vcpus[v].vm;
        self.vms[vm].barrier.arrived += 1;
        if self.vms[vm].barrier.arrived == self.vms[vm].threads {
            self.open(core, v);
            return true;
        }
        self.wait_at_barrier(core, v, pauses);
        false
    }

    /// `opener` releases all.
    pub fn open(&mut self, core: &mut Core, opener: VcpuId) {
        if self.has_scheduler(core, opener) {
            self.vms[core.vcpus[opener].vm].barrier.arrived = 0;
            self.open_barrier_of_threads(core, opener);
        } else {
            self.open_barrier(core, opener);
        }
    }

    /// `v` waits until it is released: asleep after this many pauses, or (`None`) spinning.
    pub fn wait_at_barrier(&mut self, core: &mut Core, v: VcpuId, pauses: Option<u32>) {
        let vm = core.vcpus[v].vm;
        let now = core.now_ns;
        let multi = self.vms[vm].scheduler.is_some();
        let off_mark_ns = self.vms[vm].barrier.off.at(now);
        let vcpu = &mut self.cpus[v];
        vcpu.run.arrived = true;
        vcpu.off_mark_ns = off_mark_ns;
        core.vcpus[v].pauses.spun_ns = 0;
        vcpu.run.doing = Doing::SpinBarrier;
        vcpu.run.remaining_ns = match pauses {
            None => u64::MAX,
            // A thread alone on its vCPU: it idles there, polling.
            Some(_) if core.model.idle_poll && !multi => u64::MAX,
            Some(n) => core.clock.ns(u64::from(n) * core.prices.pause_loop_cycles),
        };
        vcpu.asleep_from_ns = match pauses {
            Some(n) if core.model.idle_poll => {
                now + core.clock.ns(u64::from(n) * core.prices.pause_loop_cycles)
            }
            _ => u64::MAX,
        };
        if vcpu.run.remaining_ns == 0 {
            self.halt_at_barrier(core, v);
        }
    }

    /// It has spun long enough.
    pub fn halt_at_barrier(&mut self, core: &mut Core, v: VcpuId) {
        if self.has_scheduler(core, v) {
            self.park(core, v);
            return;
        }
        let vm = core.vcpus[v].vm;
        self.vms[vm].barrier.sleepers += 1;
        self.vms[vm].idle_halts += 1;
        let vcpu = &mut self.cpus[v];
        vcpu.run.user = false;
        vcpu.run.doing = Doing::HaltBarrier;
        vcpu.run.remaining_ns = 0;
        core.charge(v, core.prices.halt_ns, Cause::Idle);
    }

    /// `opener` was the last to arrive: all continue.
    fn open_barrier(&mut self, core: &mut Core, opener: VcpuId) {
        let vm = core.vcpus[opener].vm;
        let now = core.now_ns;
        let (first, count) = (core.vms[vm].first, core.vms[vm].vcpus);
        let interrupts = self.vms[vm].barrier.sleepers > 0;
        for v in first.and_next(count) {
            if v != opener {
                self.account(core, v);
            }
        }
        let off =
            first.and_next(count).filter(|&v| core.vcpus[v].on.state != State::Running).count()
                as u32;
        let barrier = &mut self.vms[vm].barrier;
        barrier.arrived = 0;
        barrier.sleepers = 0;
        barrier.missing_off = off;
        barrier.off.set(off > 0, now);
        // With vCPUs that wake each other, each waker pays.
        if interrupts && !self.cpus[opener].wakes_each_other {
            core.send_ipis(opener, 1);
        }
        for v in first.and_next(count).filter(|&v| v != opener) {
            self.cpus[v].run.arrived = false;
            self.cpus[v].run.user = false;
            let vcpu = &self.cpus[v];
            let asleep = core.vcpus[v].on.state == State::Halted;
            // Its thread sleeps; the vCPU sleeps, is about to, or polls.
            let thread_asleep =
                asleep || vcpu.run.doing == Doing::HaltBarrier || now >= vcpu.asleep_from_ns;
            if thread_asleep && vcpu.wakes_each_other {
                self.await_turn(core, v);
                continue;
            }
            core.stop_halt_poll(v);
            if core.vcpus[v].on.state == State::Running && interrupts {
                self.account(core, v);
                core.interrupt(v);
            }
            self.go_on_working(core, v, core.prices.handoff_ns.max(core.prices.unit_ns));
            if asleep {
                self.note_waker(core, v, opener);
                self.wake(core, v);
            } else {
                self.touch(core, v);
            }
        }
        self.wake_next_sleeper(core, opener);
    }

    /// `v`, whose thread sleeps at an open barrier made of a condition variable, continues when its
    /// turn comes.
    fn await_turn(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &mut self.cpus[v];
        vcpu.wakes_next = true;
        if core.vcpus[v].on.state == State::Halted {
            vcpu.run.doing = Doing::Work;
            vcpu.run.remaining_ns = core.prices.handoff_ns.max(core.prices.unit_ns);
        }
        self.vms[core.vcpus[v].vm].barrier.turns.push_back(v);
    }

    /// pthread_cond_broadcast() of glibc before 2.25 wakes one sleeper and lets the others wait for
    /// the mutex. Each takes it in turn, and wakes the next when it releases it.
    pub fn wake_next_sleeper(&mut self, core: &mut Core, by: VcpuId) {
        let vm = core.vcpus[by].vm;
        while let Some(v) = self.vms[vm].barrier.turns.pop_front() {
            self.account(core, v);
            let vcpu = &mut self.cpus[v];
            let halted = core.vcpus[v].on.state == State::Halted;
            // A vCPU that was woken meanwhile for another reason continues, and wakes the next one
            // then.
            let waits = matches!(vcpu.run.doing, Doing::HaltBarrier | Doing::SpinBarrier);
            if !halted && !waits {
                continue;
            }
            vcpu.run.doing = Doing::Work;
            vcpu.run.remaining_ns = core.prices.handoff_ns.max(core.prices.unit_ns);
            if halted {
                core.send_ipis(by, 1);
                self.note_waker(core, v, by);
                self.wake(core, v);
            } else {
                // It polls, and notices its work without a wake-up.
                core.stop_halt_poll(v);
                self.touch(core, v);
            }
            return;
        }
    }
}
