// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's threads and its scheduler: one queue per vCPU, and slices in timer ticks. A woken
//! thread goes to an idle vCPU, and a vCPU without threads takes one of a sibling.
//!
//! A vCPU has the fields of the thread it runs; those of the others are stored in [`Thread`]. They
//! are exchanged when a thread sleeps and at ticks, but never while it holds or waits for a
//! spin-lock, because kernels do not preempt there. With one thread per vCPU, threads never move.

use super::state::{Doing, Guest, Thread, ThreadState};
use crate::core::{Cause, Core, State};
use crate::engine::{Event, ThreadId, VcpuId, VmId};

impl Guest {
    /// Number within its VM of the thread `v` runs.
    pub fn thread_index(&self, v: VcpuId) -> u32 {
        self.threads[self.cpus[v].thread].index
    }

    pub fn has_scheduler(&self, core: &Core, v: VcpuId) -> bool {
        self.vms[core.vcpus[v].vm].scheduler.is_some()
    }

    fn put_away(&mut self, v: VcpuId, state: ThreadState) {
        let cpu = &self.cpus[v];
        let thread = &mut self.threads[cpu.thread];
        thread.state = state;
        thread.away = cpu.run;
    }

    /// `v`, accounted for, runs thread `t` from now on.
    fn take_up(&mut self, core: &mut Core, v: VcpuId, t: ThreadId) {
        let thread = &mut self.threads[t];
        thread.state = ThreadState::Running;
        thread.home = v;
        let cpu = &mut self.cpus[v];
        cpu.thread = t;
        cpu.run = thread.away;
        cpu.in_mask |= core.vcpus[v].on.state == State::Running;
        core.vcpus[v].pauses.spun_ns = 0;
        if cpu.run.doing == Doing::Work {
            cpu.run.remaining_ns += core.prices.guest_switch_ns;
        }
        self.mark_off_clock(core, v);
    }

    /// The thread on `v` sleeps, and continues with `doing` and `remaining_ns` as they are.
    pub fn park(&mut self, core: &mut Core, v: VcpuId) {
        if !self.has_scheduler(core, v) {
            self.idle(core, v);
            return;
        }
        self.put_away(v, ThreadState::Asleep);
        match self.next_thread(core, v) {
            Some(t) => self.take_up(core, v, t),
            None => {
                let vcpu = &mut self.cpus[v];
                vcpu.thread = ThreadId::NONE;
                vcpu.run.arrived = false;
                self.idle(core, v);
            }
        }
    }

    /// From the vCPU's own queue, otherwise from the longest.
    fn next_thread(&mut self, core: &mut Core, v: VcpuId) -> Option<ThreadId> {
        let vcpu = &core.vcpus[v];
        let index = vcpu.index as usize;
        let ready = &mut self.vms[vcpu.vm].scheduler.as_mut()?.ready;
        if let Some(t) = ready[index].pop_front() {
            return Some(t);
        }
        ready.iter_mut().max_by_key(|queue| queue.len())?.pop_front()
    }

    /// `v` has nothing to do: it halts, or polls if guests are set to poll.
    fn idle(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &mut self.cpus[v];
        vcpu.run.remaining_ns = 0;
        core.vcpus[v].pauses.spun_ns = 0;
        vcpu.run.user = false;
        if core.model.idle_poll {
            vcpu.run.doing = Doing::Poll;
            return;
        }
        vcpu.run.doing = Doing::HaltBlock;
        self.vms[core.vcpus[v].vm].idle_halts += 1;
        core.charge(v, core.prices.halt_ns, Cause::Idle);
    }

    /// The vCPU on which a thread is or was last.
    pub fn home(&self, t: ThreadId) -> VcpuId {
        self.threads[t].home
    }

    /// The sleeping thread `t` may continue; `by` woke it, or a timer.
    pub fn wake_thread(&mut self, core: &mut Core, by: Option<VcpuId>, t: ThreadId) {
        let Thread { vm, home, .. } = self.threads[t];
        self.threads[t].in_block = false;
        self.wake_thread_of(core, by, vm, home, t);
    }

    fn wake_thread_of(
        &mut self,
        core: &mut Core,
        by: Option<VcpuId>,
        vm: VmId,
        home: VcpuId,
        t: ThreadId,
    ) {
        if self.vms[vm].scheduler.is_none() {
            if let Some(by) = by.filter(|_| self.cpus[home].run.doing != Doing::Poll) {
                core.send_ipis(by, 1);
            }
            if let Some(by) = by {
                self.note_waker(core, home, by);
            }
            self.end_block(core, home);
            return;
        }
        let Some(v) = self.idle_vcpu(core, vm, home) else {
            self.threads[t].state = ThreadState::Ready;
            let index = core.vcpus[home].index as usize;
            if let Some(scheduler) = &mut self.vms[vm].scheduler {
                scheduler.ready[index].push_back(t);
            }
            return;
        };
        self.account(core, v);
        if let Some(by) = by {
            self.note_waker(core, v, by);
        }
        let polled = self.cpus[v].run.doing == Doing::Poll;
        if let Some(by) = by.filter(|_| !polled) {
            core.send_ipis(by, 1);
        }
        self.take_up(core, v, t);
        if core.vcpus[v].on.state == State::Halted {
            self.wake(core, v);
        } else {
            core.stop_halt_poll(v);
            self.touch(core, v);
        }
    }

    /// A vCPU without a thread, `home` if it is one.
    fn idle_vcpu(&self, core: &Core, vm: VmId, home: VcpuId) -> Option<VcpuId> {
        let vm = &core.vms[vm];
        let index = home - vm.first;
        let all = (0..vm.vcpus).map(|i| vm.first + (index + i) % vm.vcpus);
        all.into_iter().find(|&v| self.cpus[v].thread == ThreadId::NONE)
    }

    /// A tick of the guest's timer on `v`: it is another thread's turn.
    pub fn guest_tick(&mut self, core: &mut Core, v: VcpuId) {
        let period = self.vms[core.vcpus[v].vm].tick_ns;
        let timer = Event::GuestTick(v);
        core.events.arm(timer, core.now_ns + period);
        let vcpu = &core.vcpus[v];
        if vcpu.on.state == State::Halted && self.cpus[v].run.doing == Doing::HaltLock {
            // Its tick continues, because its kernel does not idle, and ends the HLT (safe_halt()).
            self.account(core, v);
            core.charge(v, core.prices.timer_ns, Cause::Other);
            self.spin_again(core, v);
            return;
        }
        if vcpu.on.state != State::Running || matches!(self.cpus[v].run.doing, Doing::HaltBlock) {
            return;
        }
        self.account(core, v);
        // On a physical machine the host's tick is the kernel's.
        if !core.model.physical {
            core.vms[core.vcpus[v].vm].apic_exits += 2;
            core.charge(v, core.prices.interrupt_ns + core.prices.timer_ns, Cause::Other);
            core.vcpus[v].pauses.spun_ns = 0;
        }
        self.rotate(core, v);
        self.touch(core, v);
    }

    fn rotate(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &self.cpus[v];
        let free = vcpu.owned == 0 && matches!(vcpu.run.doing, Doing::Work | Doing::SpinBarrier);
        let index = core.vcpus[v].index as usize;
        let (vm, t) = (core.vcpus[v].vm, vcpu.thread);
        let Some(scheduler) =
            self.vms[vm].scheduler.as_mut().filter(|_| free && t != ThreadId::NONE)
        else {
            return;
        };
        let Some(next) = scheduler.ready[index].pop_front() else { return };
        scheduler.ready[index].push_back(t);
        self.put_away(v, ThreadState::Ready);
        self.take_up(core, v, next);
    }

    /// All others continue: `opener` was the last of its VM's threads to arrive.
    pub fn open_barrier_of_threads(&mut self, core: &mut Core, opener: VcpuId) {
        let vm = core.vcpus[opener].vm;
        let (first, count) = (self.vms[vm].first_thread, self.vms[vm].threads);
        let by = self.cpus[opener].thread;
        for t in first.and_next(count).filter(|t| *t != by) {
            let Thread { home: v, state, .. } = self.threads[t];
            if state == ThreadState::Running {
                self.account(core, v);
                let vcpu = &mut self.cpus[v];
                (vcpu.run.arrived, vcpu.run.user) = (false, false);
                self.go_on_working(core, v, core.prices.handoff_ns.max(core.prices.unit_ns));
                self.touch(core, v);
                continue;
            }
            let away = &mut self.threads[t].away;
            (away.arrived, away.user, away.doing) = (false, false, Doing::Work);
            away.remaining_ns = core.prices.unit_ns;
            if state == ThreadState::Asleep {
                self.wake_thread(core, Some(opener), t);
            }
        }
    }

    /// `v` wants a pCPU and has none from now on, or has one again.
    #[inline]
    pub fn note_wanting(&mut self, core: &Core, v: VcpuId, wants: bool) {
        let vm = &mut self.vms[core.vcpus[v].vm];
        let Some(scheduler) = &mut vm.scheduler else { return };
        scheduler.off = if wants { scheduler.off + 1 } else { scheduler.off - 1 };
        vm.barrier.off.set(scheduler.off > 0, core.now_ns);
    }

    /// HLT until woken, or until the timer fires.
    pub fn block(&mut self, core: &mut Core, v: VcpuId, timer_ns: u64, has_timer: bool) {
        let vcpu = &mut self.cpus[v];
        vcpu.run.doing = Doing::Work;
        vcpu.run.remaining_ns = core.prices.unit_ns;
        let t = vcpu.thread;
        self.threads[t].in_block = true;
        core.vms[core.vcpus[v].vm].apic_exits += 1;
        core.charge(v, core.prices.timer_ns, Cause::Other);
        if has_timer {
            let at = core.now_ns + core.prices.timer_ns + timer_ns.max(1);
            core.events.arm(Event::SleepEnd(t), at);
            self.begins_at(core, v, at);
        }
        self.park(core, v);
    }

    /// The sleep of the only thread of `v` ends, by its timer or by a sibling.
    pub fn end_block(&mut self, core: &mut Core, v: VcpuId) {
        self.account(core, v);
        core.stop_halt_poll(v);
        let vcpu = &mut self.cpus[v];
        vcpu.in_mask |= vcpu.run.doing == Doing::Poll;
        vcpu.run.doing = Doing::Work;
        vcpu.run.remaining_ns = core.prices.unit_ns;
        if core.vcpus[v].on.state == State::Halted {
            self.wake(core, v);
        } else {
            self.touch(core, v);
        }
    }

    pub fn wake_next(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &core.vcpus[v];
        let vm = &self.vms[vcpu.vm];
        let next = vm.first_thread + (self.thread_index(v) + 1) % vm.threads;
        if next == self.cpus[v].thread || !self.threads[next].in_block {
            return;
        }
        core.events.cancel(Event::SleepEnd(next));
        self.threads[next].due_ns = 0;
        self.wake_thread(core, Some(v), next);
    }
}
