// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest: runs the steps `guest/main.c` runs, in the same order, with the same random numbers.
//!
//! Work between two steps that others can notice is one interval. Spinning is an interval too: it
//! ends when the lock is handed over (`lock/`), the barrier opens, or the window is over.

use crate::engine::{Event, VcpuId};
use crate::machine::Sim;
use crate::program;
use crate::state::{Cause, Doing, State};
use unspin_guest_abi as abi;

/// Whether a step is work that nobody else notices.
fn is_work(op: u32) -> bool {
    matches!(
        op,
        abi::OP_COMPUTE
            | abi::OP_CRITICAL
            | program::OP_COMPUTE_FIRST
            | program::OP_COMPUTE_TURN
            | program::OP_SHARE
    )
}

impl Sim {
    pub(crate) fn draw(&mut self, v: VcpuId, step: &abi::Step) -> u32 {
        let rng = &mut self.vcpus[v].rng;
        match step.dist {
            abi::DIST_UNIFORM => rng.uniform(step.a, step.b),
            abi::DIST_EXP => rng.exp(step.a, step.b),
            _ => step.a,
        }
    }

    /// Runs the program of `v` on from its `pc`, after `ns` of work that is due already, up to the
    /// next thing that takes time and that others may notice.
    pub(crate) fn advance(&mut self, v: VcpuId, mut ns: u64) {
        let vm = &self.vms[self.vcpus[v].vm];
        let (begin, end) = (vm.program, vm.program_end);
        let mut pc = self.vcpus[v].pc;
        if std::mem::take(&mut self.vcpus[v].wakes_next) {
            // Woken for something else it may stand in line still.
            let vm = self.vcpus[v].vm;
            self.vms[vm].barrier.turns.retain(|u| *u != v);
            self.wake_in_turn(v);
        }
        loop {
            if pc == end {
                // A unit counts when its work is done; what releasing its last lock takes is no
                // reason for an event of its own.
                if ns > self.unlock_ns {
                    break;
                }
                self.vcpus[v].units += 1;
                self.vcpus[v].passes += 1;
                pc = begin;
                // Also a program of no length takes time.
                ns += self.unit_ns;
            }
            let step = self.steps[pc as usize];
            if !self.vcpus[v].taken {
                if step.permille < 1000 && !self.vcpus[v].rng.chance(step.permille) {
                    pc = begin + step.skip;
                    continue;
                }
                ns += self.step_ns;
            }
            let is_work = is_work(step.op);
            if !is_work && ns > 0 {
                self.vcpus[v].taken = true;
                break;
            }
            self.vcpus[v].taken = false;
            pc += 1;
            match step.op {
                abi::OP_COMPUTE | abi::OP_CRITICAL => {
                    let iterations = u64::from(self.draw(v, &step));
                    ns += self.clock.ns(iterations * self.iteration_cycles);
                }
                abi::OP_LOCK => {
                    if !self.lock(v, step.lock) {
                        self.vcpus[v].pc = pc;
                        return;
                    }
                    ns += self.lock_ns;
                }
                abi::OP_UNLOCK => {
                    self.unlock(v, step.lock);
                    ns += self.unlock_ns;
                }
                abi::OP_WAKE => self.wake_next(v),
                abi::OP_BLOCK => {
                    let timer_ns = self.draw(v, &step);
                    self.vcpus[v].pc = pc;
                    self.block(v, u64::from(timer_ns), step.b != 0);
                    return;
                }
                abi::OP_BARRIER
                | abi::OP_SPIN_BARRIER
                | program::OP_USER_BARRIER
                | program::OP_COND_BARRIER => {
                    // Without a length of its own who spins in user space never goes to sleep.
                    let sleeps = match step.op {
                        abi::OP_BARRIER | program::OP_COND_BARRIER => true,
                        program::OP_USER_BARRIER => step.b > 0,
                        _ => false,
                    };
                    let pauses = sleeps.then(|| self.draw(v, &step));
                    self.vcpus[v].pc = pc;
                    self.vcpus[v].user = step.op == program::OP_USER_BARRIER
                        || (step.op == program::OP_COND_BARRIER && step.b > 0);
                    self.vcpus[v].in_turn = step.op == program::OP_COND_BARRIER;
                    if !self.barrier(v, pauses) {
                        return;
                    }
                    self.vcpus[v].user = false;
                }
                program::OP_COMPUTE_FIRST | program::OP_COMPUTE_TURN => {
                    let iterations = u64::from(self.draw(v, &step));
                    if self.is_turn(v, step.op) {
                        ns += self.clock.ns(iterations * self.iteration_cycles);
                    }
                }
                program::OP_SERIAL_FIRST | program::OP_SERIAL_TURN => {
                    self.vcpus[v].pc = pc;
                    self.vcpus[v].in_turn = false;
                    if !self.serial(v, &step) {
                        return;
                    }
                }
                program::OP_SHARE => {
                    let lines = u64::from(self.draw(v, &step));
                    let (whole_ns, far_ns) = self.share_ns(v, lines);
                    ns += whole_ns;
                    self.vcpus[v].cache_ns += far_ns;
                }
                program::OP_MUTEX => {
                    self.vcpus[v].pc = pc - 1;
                    if !self.mutex(v, step.lock) {
                        return;
                    }
                    ns += self.lock_ns;
                }
                program::OP_MUTEX_UNLOCK => {
                    self.mutex_unlock(v, step.lock);
                    ns += self.unlock_ns;
                }
                program::OP_SOCKET_WAIT => {
                    self.vcpus[v].pc = pc - 1;
                    if !self.socket_wait(v, step.a) {
                        return;
                    }
                }
                program::OP_SOCKET_LOCK => {
                    if !self.lock(v, self.socket_lock(v)) {
                        self.vcpus[v].pc = pc;
                        return;
                    }
                    ns += self.lock_ns;
                }
                program::OP_SOCKET_UNLOCK => {
                    self.unlock(v, self.socket_lock(v));
                    self.socket_moved(v, step.a);
                    ns += self.unlock_ns;
                }
                _ => {
                    self.vcpus[v].pc = pc;
                    let in_turn = self.vms[self.vcpus[v].vm].in_turn;
                    let goes_on = match in_turn {
                        true => self.shootdown_in_turn(v),
                        false => self.shootdown(v, step.op == program::OP_SHOOTDOWN_LAZY),
                    };
                    if !goes_on {
                        return;
                    }
                }
            }
        }
        let vcpu = &mut self.vcpus[v];
        vcpu.pc = pc;
        vcpu.doing = Doing::Work;
        vcpu.remaining_ns = ns;
    }

    /// Whether a step for one thread is for that on `v`.
    fn is_turn(&self, v: VcpuId, op: u32) -> bool {
        self.thread_index(v) == self.turn(v, op)
    }

    /// Number of the thread that a step for one thread is for, in the pass `v` is in.
    pub(crate) fn turn(&self, v: VcpuId, op: u32) -> u32 {
        let vcpu = &self.vcpus[v];
        match op {
            program::OP_COMPUTE_TURN | program::OP_SERIAL_TURN => {
                (vcpu.passes % u64::from(self.vms[vcpu.vm].threads)) as u32
            }
            _ => 0,
        }
    }

    /// `v`, running, has arrived. Whether it goes on at once.
    fn barrier(&mut self, v: VcpuId, pauses: Option<u32>) -> bool {
        let vm = self.vcpus[v].vm;
        self.vms[vm].barrier.arrived += 1;
        if self.vms[vm].barrier.arrived == self.vms[vm].threads {
            self.open(v);
            return true;
        }
        self.wait_at_barrier(v, pauses);
        false
    }

    /// `opener` lets all go on.
    pub(crate) fn open(&mut self, opener: VcpuId) {
        if self.has_scheduler(opener) {
            self.vms[self.vcpus[opener].vm].barrier.arrived = 0;
            self.open_barrier_of_threads(opener);
        } else {
            self.open_barrier(opener);
        }
    }

    /// `v` waits until it is let go on: asleep after so many pauses, or (`None`) spinning.
    pub(crate) fn wait_at_barrier(&mut self, v: VcpuId, pauses: Option<u32>) {
        let vm = self.vcpus[v].vm;
        let now = self.now_ns;
        let multi = self.vms[vm].scheduler.is_some();
        let off_mark_ns = self.vms[vm].barrier.off.at(now);
        let vcpu = &mut self.vcpus[v];
        vcpu.arrived = true;
        vcpu.off_mark_ns = off_mark_ns;
        vcpu.spun_ns = 0;
        vcpu.doing = Doing::SpinBarrier;
        vcpu.remaining_ns = match pauses {
            None => u64::MAX,
            // A thread alone on its vCPU: it idles there, polling.
            Some(_) if self.host.idle_poll && !multi => u64::MAX,
            Some(n) => self.clock.ns(u64::from(n) * self.pause_loop_cycles),
        };
        vcpu.asleep_from_ns = match pauses {
            Some(n) if self.host.idle_poll => {
                now + self.clock.ns(u64::from(n) * self.pause_loop_cycles)
            }
            _ => u64::MAX,
        };
        if vcpu.remaining_ns == 0 {
            self.halt_at_barrier(v);
        }
    }

    /// It has spun long enough.
    pub(crate) fn halt_at_barrier(&mut self, v: VcpuId) {
        if self.has_scheduler(v) {
            self.park(v);
            return;
        }
        let vm = self.vcpus[v].vm;
        self.vms[vm].barrier.sleepers += 1;
        let vcpu = &mut self.vcpus[v];
        vcpu.user = false;
        vcpu.doing = Doing::HaltBarrier;
        vcpu.remaining_ns = 0;
        self.charge(v, self.halt_ns, Cause::Idle);
    }

    /// `opener` was the last to arrive: everybody goes on.
    fn open_barrier(&mut self, opener: VcpuId) {
        let vm = self.vcpus[opener].vm;
        let now = self.now_ns;
        let (first, count) = (self.vms[vm].first, self.vms[vm].vcpus);
        let interrupts = self.vms[vm].barrier.sleepers > 0;
        for v in first.and_next(count) {
            if v != opener {
                self.account(v);
            }
        }
        let off =
            first.and_next(count).filter(|&v| self.vcpus[v].state != State::Running).count() as u32;
        let barrier = &mut self.vms[vm].barrier;
        barrier.arrived = 0;
        barrier.sleepers = 0;
        barrier.missing_off = off;
        barrier.off.set(off > 0, now);
        // Who wakes them in turn pays for each.
        if interrupts && !self.vcpus[opener].in_turn {
            self.send_ipis(opener, 1);
        }
        for v in first.and_next(count).filter(|&v| v != opener) {
            self.vcpus[v].arrived = false;
            self.vcpus[v].user = false;
            let vcpu = &self.vcpus[v];
            let asleep = vcpu.state == State::Halted;
            // Its thread sleeps, whether the vCPU does, is about to, or polls.
            let thread_asleep =
                asleep || vcpu.doing == Doing::HaltBarrier || now >= vcpu.asleep_from_ns;
            if thread_asleep && vcpu.in_turn {
                self.await_turn(v);
                continue;
            }
            self.stop_halt_poll(v);
            if self.vcpus[v].state == State::Running && interrupts {
                self.interrupt(v);
            }
            self.advance(v, self.handoff_ns.max(self.unit_ns));
            if asleep {
                self.note_waker(v, opener);
                self.wake(v);
            } else {
                self.rearm(v);
            }
        }
        self.wake_in_turn(opener);
    }

    /// `v`, whose thread sleeps at an open barrier made of a condition variable, goes on when its turn
    /// comes.
    fn await_turn(&mut self, v: VcpuId) {
        let vcpu = &mut self.vcpus[v];
        vcpu.wakes_next = true;
        if vcpu.state == State::Halted {
            vcpu.doing = Doing::Work;
            vcpu.remaining_ns = self.handoff_ns.max(self.unit_ns);
        }
        self.vms[vcpu.vm].barrier.turns.push_back(v);
    }

    /// pthread_cond_broadcast() of glibc before 2.25 wakes one sleeper and leaves the others to wait for
    /// its mutex, which each in turn takes, and wakes the next when it lets go of it.
    fn wake_in_turn(&mut self, by: VcpuId) {
        let vm = self.vcpus[by].vm;
        while let Some(v) = self.vms[vm].barrier.turns.pop_front() {
            self.account(v);
            let vcpu = &mut self.vcpus[v];
            let halted = vcpu.state == State::Halted;
            // Who was woken meanwhile for something else goes on, and wakes the next when it does.
            let waits = matches!(vcpu.doing, Doing::HaltBarrier | Doing::SpinBarrier);
            if !halted && !waits {
                continue;
            }
            vcpu.doing = Doing::Work;
            vcpu.remaining_ns = self.handoff_ns.max(self.unit_ns);
            if halted {
                self.send_ipis(by, 1);
                self.note_waker(v, by);
                self.wake(v);
            } else {
                // It polls, and sees by itself that it has work.
                self.stop_halt_poll(v);
                self.rearm(v);
            }
            return;
        }
    }

    /// HLT until woken, or until the timer fires.
    fn block(&mut self, v: VcpuId, timer_ns: u64, has_timer: bool) {
        let vcpu = &mut self.vcpus[v];
        vcpu.doing = Doing::Work;
        vcpu.remaining_ns = self.unit_ns;
        let t = vcpu.thread;
        self.threads[t].in_block = true;
        self.vms[self.vcpus[v].vm].apic_exits += 1;
        self.charge(v, self.timer_ns, Cause::Other);
        if has_timer {
            let at = self.now_ns + self.timer_ns + timer_ns.max(1);
            self.queue.arm(Event::SleepEnd(t), at);
        }
        self.park(v);
    }

    /// The sleep of the only thread of `v` is over, by its timer or by a sibling.
    pub(crate) fn end_block(&mut self, v: VcpuId) {
        self.account(v);
        self.stop_halt_poll(v);
        let vcpu = &mut self.vcpus[v];
        vcpu.in_mask |= vcpu.doing == Doing::Poll;
        vcpu.doing = Doing::Work;
        vcpu.remaining_ns = self.unit_ns;
        if vcpu.state == State::Halted {
            self.wake(v);
        } else {
            self.rearm(v);
        }
    }

    fn wake_next(&mut self, v: VcpuId) {
        let vcpu = &self.vcpus[v];
        let vm = &self.vms[vcpu.vm];
        let next = vm.first_thread + (self.thread_index(v) + 1) % vm.threads;
        if next == vcpu.thread || !self.threads[next].in_block {
            return;
        }
        self.queue.cancel(Event::SleepEnd(next));
        self.wake_thread(Some(v), next);
    }
}
