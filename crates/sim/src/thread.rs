// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's threads and its scheduler: a queue a vCPU, slices by timer ticks, a woken thread goes
//! to an idle vCPU, one that runs out of threads takes a sibling's.
//!
//! A vCPU has the fields of the thread it runs; those of the others are put away in [`Thread`].
//! They are exchanged where a thread sleeps and at ticks, never while it holds or waits for a
//! spin-lock: kernels do not preempt there. Where there is a thread a vCPU none ever moves.

use crate::engine::{Event, PcpuId, Rng, ThreadId, VcpuId, VmId};
use crate::machine::Sim;
use crate::sched::NONE;
use crate::state::{Cause, Doing, State};
use std::collections::VecDeque;

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadState {
    /// On its vCPU (which may be off its pCPU).
    Running,
    /// Waits for a vCPU.
    Ready,
    Asleep,
}

#[derive(Debug, Clone)]
pub struct Thread {
    pub vm: VmId,
    /// Number within its VM.
    pub index: u32,
    /// vCPU it is or last was on.
    pub home: VcpuId,
    pub state: ThreadState,
    /// In a `block` step: others may wake it.
    pub in_block: bool,
    /// Its side of things while it is not on a vCPU.
    pub away: Context,
}

/// What a vCPU keeps of the thread it runs.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    pub doing: Doing,
    pub taken: bool,
    pub arrived: bool,
    pub user: bool,
    pub pc: u32,
    pub remaining_ns: u64,
    pub cache_ns: u64,
    pub passes: u64,
    pub rng: Rng,
}

/// A VM's threads where there are more or fewer than vCPUs.
#[derive(Debug, Clone, Default)]
pub struct Scheduler {
    /// Threads that want each vCPU.
    pub ready: Vec<VecDeque<ThreadId>>,
    /// vCPUs that want a pCPU and have none.
    pub off: u32,
}

impl Sim {
    /// Number within its VM of the thread `v` runs.
    pub(crate) fn thread_index(&self, v: VcpuId) -> u32 {
        self.threads[self.vcpus[v].thread].index
    }

    pub(crate) fn has_scheduler(&self, v: VcpuId) -> bool {
        self.vms[self.vcpus[v].vm].scheduler.is_some()
    }

    fn put_away(&mut self, v: VcpuId, state: ThreadState) {
        let vcpu = &self.vcpus[v];
        let thread = &mut self.threads[vcpu.thread];
        thread.state = state;
        thread.away = Context {
            doing: vcpu.doing,
            taken: vcpu.taken,
            arrived: vcpu.arrived,
            user: vcpu.user,
            pc: vcpu.pc,
            remaining_ns: vcpu.remaining_ns,
            cache_ns: vcpu.cache_ns,
            passes: vcpu.passes,
            rng: vcpu.rng,
        };
    }

    /// `v`, accounted for, runs thread `t` from now on.
    fn take_up(&mut self, v: VcpuId, t: ThreadId) {
        let thread = &mut self.threads[t];
        thread.state = ThreadState::Running;
        thread.home = v;
        let away = thread.away;
        let vcpu = &mut self.vcpus[v];
        vcpu.thread = t;
        vcpu.in_mask |= vcpu.state == State::Running;
        vcpu.doing = away.doing;
        vcpu.taken = away.taken;
        vcpu.arrived = away.arrived;
        vcpu.user = away.user;
        vcpu.pc = away.pc;
        vcpu.remaining_ns = away.remaining_ns;
        vcpu.cache_ns = away.cache_ns;
        vcpu.passes = away.passes;
        vcpu.rng = away.rng;
        vcpu.spun_ns = 0;
        if vcpu.doing == Doing::Work {
            vcpu.remaining_ns += self.guest_switch_ns;
        }
        self.mark_off_clock(v);
    }

    /// The thread on `v` sleeps, and goes on with `doing` and `remaining_ns` as they stand.
    pub(crate) fn park(&mut self, v: VcpuId) {
        if !self.has_scheduler(v) {
            self.idle(v);
            return;
        }
        self.put_away(v, ThreadState::Asleep);
        match self.next_thread(v) {
            Some(t) => self.take_up(v, t),
            None => {
                let vcpu = &mut self.vcpus[v];
                vcpu.thread = ThreadId::NONE;
                vcpu.arrived = false;
                self.idle(v);
            }
        }
    }

    /// From the vCPU's own queue, else from the longest.
    fn next_thread(&mut self, v: VcpuId) -> Option<ThreadId> {
        let vcpu = &self.vcpus[v];
        let index = vcpu.index as usize;
        let ready = &mut self.vms[vcpu.vm].scheduler.as_mut()?.ready;
        if let Some(t) = ready[index].pop_front() {
            return Some(t);
        }
        ready.iter_mut().max_by_key(|queue| queue.len())?.pop_front()
    }

    /// `v` has nothing to do: it halts, or polls where guests are told to.
    fn idle(&mut self, v: VcpuId) {
        let vcpu = &mut self.vcpus[v];
        vcpu.remaining_ns = 0;
        vcpu.spun_ns = 0;
        vcpu.user = false;
        if self.host.idle_poll {
            vcpu.doing = Doing::Poll;
            return;
        }
        vcpu.doing = Doing::HaltBlock;
        self.charge(v, self.halt_ns, Cause::Idle);
    }

    /// Thread `t`, asleep, may go on; `by` woke it, or a timer did.
    pub(crate) fn wake_thread(&mut self, by: Option<VcpuId>, t: ThreadId) {
        let Thread { vm, home, .. } = self.threads[t];
        self.threads[t].in_block = false;
        if by.is_none() {
            self.timer_interrupt(home);
        }
        self.wake_thread_of(by, vm, home, t);
        self.interrupted = PcpuId::NONE;
    }

    fn wake_thread_of(&mut self, by: Option<VcpuId>, vm: VmId, home: VcpuId, t: ThreadId) {
        if self.vms[vm].scheduler.is_none() {
            if let Some(by) = by.filter(|_| self.vcpus[home].doing != Doing::Poll) {
                self.send_ipis(by, 1);
            }
            if let Some(by) = by {
                self.note_waker(home, by);
            }
            self.end_block(home);
            return;
        }
        let Some(v) = self.idle_vcpu(vm, home) else {
            self.threads[t].state = ThreadState::Ready;
            let index = self.vcpus[home].index as usize;
            if let Some(scheduler) = &mut self.vms[vm].scheduler {
                scheduler.ready[index].push_back(t);
            }
            return;
        };
        self.account(v);
        if let Some(by) = by {
            self.note_waker(v, by);
        }
        let polled = self.vcpus[v].doing == Doing::Poll;
        if let Some(by) = by.filter(|_| !polled) {
            self.send_ipis(by, 1);
        }
        self.take_up(v, t);
        if self.vcpus[v].state == State::Halted {
            self.wake(v);
        } else {
            self.stop_halt_poll(v);
            self.rearm(v);
        }
    }

    /// The host's timer for `v` goes off on the pCPU of `v`: who runs there pays, or for want of one
    /// `v`.
    fn timer_interrupt(&mut self, v: VcpuId) {
        if !self.times_handling() {
            return;
        }
        let ns = self.timer_wake_ns;
        let p = self.vcpus[v].pcpu;
        self.interrupted = p;
        let current = self.queues[p].current;
        if current == NONE || current == v {
            self.account(v);
            self.charge(v, ns, Cause::Idle);
            self.rearm(v);
            return;
        }
        self.account(current);
        self.charge(current, ns, Cause::Other);
        self.vcpus[current].spun_ns = 0;
        self.rearm(current);
    }

    /// A vCPU without a thread, `home` if it is one.
    fn idle_vcpu(&self, vm: VmId, home: VcpuId) -> Option<VcpuId> {
        let vm = &self.vms[vm];
        let index = home - vm.first;
        let all = (0..vm.vcpus).map(|i| vm.first + (index + i) % vm.vcpus);
        all.into_iter().find(|&v| self.vcpus[v].thread == ThreadId::NONE)
    }

    /// A tick of the guest's timer on `v`: another thread's turn.
    pub(crate) fn guest_tick(&mut self, v: VcpuId) {
        let period = self.vms[self.vcpus[v].vm].tick_ns;
        let timer = Event::GuestTick(v);
        self.queue.arm(timer, self.now_ns + period);
        let vcpu = &self.vcpus[v];
        if vcpu.state == State::Halted && vcpu.doing == Doing::HaltLock {
            // Its tick goes on, as its kernel does not idle, and ends the HLT (safe_halt()).
            self.account(v);
            self.charge(v, self.timer_ns, Cause::Other);
            self.spin_again(v);
            return;
        }
        if vcpu.state != State::Running || matches!(vcpu.doing, Doing::HaltBlock) {
            return;
        }
        self.account(v);
        // On a physical machine the host's tick is the kernel's.
        if !self.host.physical {
            self.vms[self.vcpus[v].vm].apic_exits += 2;
            self.charge(v, self.interrupt_ns + self.timer_ns, Cause::Other);
            self.vcpus[v].spun_ns = 0;
        }
        self.rotate(v);
        self.rearm(v);
    }

    fn rotate(&mut self, v: VcpuId) {
        let vcpu = &self.vcpus[v];
        let free = vcpu.owned == 0 && matches!(vcpu.doing, Doing::Work | Doing::SpinBarrier);
        let index = vcpu.index as usize;
        let (vm, t) = (vcpu.vm, vcpu.thread);
        let Some(scheduler) =
            self.vms[vm].scheduler.as_mut().filter(|_| free && t != ThreadId::NONE)
        else {
            return;
        };
        let Some(next) = scheduler.ready[index].pop_front() else { return };
        scheduler.ready[index].push_back(t);
        self.put_away(v, ThreadState::Ready);
        self.take_up(v, next);
    }

    /// Everybody else goes on: `opener` was the last of its VM's threads to arrive.
    pub(crate) fn open_barrier_of_threads(&mut self, opener: VcpuId) {
        let vm = self.vcpus[opener].vm;
        let (first, count) = (self.vms[vm].first_thread, self.vms[vm].threads);
        let by = self.vcpus[opener].thread;
        for t in first.and_next(count).filter(|t| *t != by) {
            let Thread { home: v, state, .. } = self.threads[t];
            if state == ThreadState::Running {
                self.account(v);
                let vcpu = &mut self.vcpus[v];
                (vcpu.arrived, vcpu.user) = (false, false);
                self.go_on_working(v, self.handoff_ns.max(self.unit_ns));
                self.rearm(v);
                continue;
            }
            let away = &mut self.threads[t].away;
            (away.arrived, away.user, away.doing) = (false, false, Doing::Work);
            away.remaining_ns = self.unit_ns;
            if state == ThreadState::Asleep {
                self.wake_thread(Some(opener), t);
            }
        }
    }

    /// `v` wants a pCPU and has none from now on, or has one again.
    pub(crate) fn note_wanting(&mut self, v: VcpuId, wants: bool) {
        let vm = &mut self.vms[self.vcpus[v].vm];
        let Some(scheduler) = &mut vm.scheduler else { return };
        scheduler.off = if wants { scheduler.off + 1 } else { scheduler.off - 1 };
        vm.barrier.off.set(scheduler.off > 0, self.now_ns);
    }
}
