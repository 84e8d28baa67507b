// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest: runs the steps `guest/main.c` runs, in the same order, with the same random numbers.
//!
//! Work between two steps that others can notice is one interval. Spinning is an interval too: it
//! ends when the lock is handed over (`lock/`), the barrier opens, or the window is over.

use crate::engine::{Event, VcpuId};
use crate::machine::Sim;
use crate::program::{Act, Draw, Instruction, Meet, Step, Turn, Work};
use crate::state::{Cause, Doing, State};

impl Sim {
    pub(crate) fn draw(&mut self, v: VcpuId, draw: Draw) -> u32 {
        draw.from(&mut self.vcpus[v].rng)
    }

    /// Runs the program of `v` on from its `pc`, after `ns` of work that is due already, up to the
    /// next thing that takes time and that others may notice.
    pub(crate) fn advance(&mut self, v: VcpuId, mut ns: u64) {
        if std::mem::take(&mut self.vcpus[v].wakes_next) {
            // Woken for something else it may stand in line still.
            let vm = self.vcpus[v].vm;
            self.vms[vm].barrier.turns.retain(|u| *u != v);
            self.wake_in_turn(v);
        }
        while let Some(act) = self.work_on(v, ns) {
            match self.act(v, act) {
                Some(more_ns) => ns = more_ns,
                None => return,
            }
        }
    }

    /// `v`, with `ns` of work before it, goes on through all steps that are work too, and works for as
    /// long as they take. If no work is due before the next step that others notice: that step, which
    /// is behind it now.
    pub(crate) fn work_on(&mut self, v: VcpuId, mut ns: u64) -> Option<Act> {
        let vm = &self.vms[self.vcpus[v].vm];
        let (begin, end) = (vm.program, vm.program_end);
        let mut pc = self.vcpus[v].pc;
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
            let Instruction { step, permille, skip } = self.steps[pc as usize];
            if !self.vcpus[v].taken {
                if permille < 1000 && !self.vcpus[v].rng.chance(permille) {
                    pc = begin + skip;
                    continue;
                }
                ns += self.step_ns;
            }
            match step {
                Step::Work(work) => ns += self.work_ns(v, work),
                Step::Act(_) if ns > 0 => {
                    self.vcpus[v].taken = true;
                    break;
                }
                Step::Act(act) => {
                    self.vcpus[v].taken = false;
                    self.vcpus[v].pc = pc + 1;
                    return Some(act);
                }
            }
            self.vcpus[v].taken = false;
            pc += 1;
        }
        let vcpu = &mut self.vcpus[v];
        vcpu.pc = pc;
        vcpu.doing = Doing::Work;
        vcpu.remaining_ns = ns;
        None
    }

    fn work_ns(&mut self, v: VcpuId, work: Work) -> u64 {
        match work {
            Work::Iterations(draw) => {
                let iterations = u64::from(self.draw(v, draw));
                self.clock.ns(iterations * self.iteration_cycles)
            }
            Work::InTurn(turn, draw) => {
                let iterations = u64::from(self.draw(v, draw));
                let is_turn = self.thread_index(v) == self.turn(v, turn);
                if is_turn {
                    self.clock.ns(iterations * self.iteration_cycles)
                } else {
                    0
                }
            }
            Work::Share(draw) => {
                let lines = u64::from(self.draw(v, draw));
                let (whole_ns, far_ns) = self.share_ns(v, lines);
                self.vcpus[v].cache_ns += far_ns;
                whole_ns
            }
        }
    }

    /// `v` does what others notice. How long that takes, ns; `None`: it waits.
    fn act(&mut self, v: VcpuId, act: Act) -> Option<u64> {
        match act {
            Act::Lock(number) => self.lock(v, number).then_some(self.lock_ns),
            Act::Unlock(number) => {
                self.unlock(v, number);
                Some(self.unlock_ns)
            }
            Act::Mutex(number) => self.mutex(v, number).then_some(self.lock_ns),
            Act::MutexUnlock(number) => {
                self.mutex_unlock(v, number);
                Some(self.unlock_ns)
            }
            Act::Wake => {
                self.wake_next(v);
                Some(0)
            }
            Act::Block { ns, has_timer } => {
                let timer_ns = self.draw(v, ns);
                self.block(v, u64::from(timer_ns), has_timer);
                None
            }
            Act::Barrier(meet) => self.barrier(v, meet).then_some(0),
            Act::Serial(turn, draw) => self.serial(v, turn, draw).then_some(0),
            Act::SocketWait { capacity } => self.socket_wait(v, capacity).then_some(0),
            Act::SocketLock => self.lock(v, self.socket_lock(v)).then_some(self.lock_ns),
            Act::SocketUnlock { capacity } => {
                self.unlock(v, self.socket_lock(v));
                self.socket_moved(v, capacity);
                Some(self.unlock_ns)
            }
            Act::Shootdown { lazy, .. } => {
                let in_turn = self.vms[self.vcpus[v].vm].in_turn;
                let goes_on =
                    if in_turn { self.shootdown_in_turn(v) } else { self.shootdown(v, lazy) };
                goes_on.then_some(0)
            }
        }
    }

    /// Number of the thread that a step for one thread is for, in the pass `v` is in.
    pub(crate) fn turn(&self, v: VcpuId, turn: Turn) -> u32 {
        let vcpu = &self.vcpus[v];
        match turn {
            Turn::First => 0,
            Turn::EachInTurn => (vcpu.passes % u64::from(self.vms[vcpu.vm].threads)) as u32,
        }
    }

    /// `v`, running, arrives at a barrier. Whether it goes on at once.
    fn barrier(&mut self, v: VcpuId, meet: Meet) -> bool {
        let (pauses, user, in_turn) = match meet {
            Meet::Sleep { pauses } => (Some(pauses), false, false),
            Meet::Spin => (None, false, false),
            Meet::User { pauses } => (pauses, true, false),
            Meet::Cond { pauses, user } => (Some(pauses), user, true),
        };
        let pauses = pauses.map(|draw| self.draw(v, draw));
        (self.vcpus[v].user, self.vcpus[v].in_turn) = (user, in_turn);
        let goes_on = self.arrive(v, pauses);
        self.vcpus[v].user &= !goes_on;
        goes_on
    }

    /// `v`, let go on by somebody else, has `ns` (not 0) of work before it, and what follows that is
    /// work too. It does nothing that others notice: so nobody who lets others go on is called back.
    pub(crate) fn go_on_working(&mut self, v: VcpuId, ns: u64) {
        debug_assert!(ns > 0 && !self.vcpus[v].wakes_next);
        let act = self.work_on(v, ns);
        debug_assert_eq!(act, None);
    }

    /// `v`, running, has arrived. Whether it goes on at once.
    fn arrive(&mut self, v: VcpuId, pauses: Option<u32>) -> bool {
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
            self.go_on_working(v, self.handoff_ns.max(self.unit_ns));
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
