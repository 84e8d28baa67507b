// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's interpreter: runs the same steps as `guest/main.c`, in the same order, with the same
//! random numbers.
//!
//! The work between two steps that others can notice is one interval. Spinning is an interval, too.
//! It ends when the lock is handed over (`lock/`), the barrier opens, or the window is over.

use super::program::{Act, Draw, Instruction, OneThread, Step, Work};
use super::state::{Doing, Guest};
use crate::core::Core;
use crate::engine::VcpuId;
use unspin_guest_abi as abi;

impl Guest {
    pub fn draw(&mut self, v: VcpuId, draw: Draw) -> u32 {
        draw.from(&mut self.cpus[v].run.rng)
    }

    /// Runs the program of `v` from its `pc`, after `ns` of work that is already due, until the
    /// next action that takes time and that others may notice. If others must be handled before,
    /// returns `Some(ns)`: call it again with that value afterwards.
    pub fn advance(&mut self, core: &mut Core, v: VcpuId, mut ns: u64) -> Option<u64> {
        if std::mem::take(&mut self.cpus[v].wakes_next) {
            // If it was woken for something else, it may still be in line.
            let vm = core.vcpus[v].vm;
            self.vms[vm].barrier.turns.retain(|u| *u != v);
            self.wake_next_sleeper(core, v);
            if !core.effects.is_empty() {
                return Some(ns);
            }
        }
        while (ns == 0 && self.begin_act(v)) || self.work_on(core, v, ns) {
            ns = self.act(core, v)?;
            if !core.effects.is_empty() {
                return Some(ns);
            }
        }
        None
    }

    /// Whether `v` has passed a step that others notice and stopped behind it: what
    /// [`Guest::work_on`] would also find.
    #[inline]
    fn begin_act(&mut self, v: VcpuId) -> bool {
        let run = &mut self.cpus[v].run;
        let stopped = run.taken && matches!(self.steps[run.pc as usize].step, Step::Act(_));
        if stopped {
            run.taken = false;
            run.pc += 1;
        }
        stopped
    }

    /// Continues `v`, with `ns` of work before it, through all steps that are also work. Returns
    /// whether no work is due before the next step that others notice; it has then passed that step
    /// ([`Guest::act`]).
    pub fn work_on(&mut self, core: &mut Core, v: VcpuId, mut ns: u64) -> bool {
        let vm = &self.vms[core.vcpus[v].vm];
        let (begin, end, responds) = (vm.program, vm.program_end, vm.responses.is_some());
        let mut pc = self.cpus[v].run.pc;
        loop {
            if pc == end {
                // A unit counts when its work is done. Releasing its last lock needs no event of
                // its own.
                if ns > core.prices.unlock_ns {
                    break;
                }
                self.cpus[v].units += 1;
                self.cpus[v].run.passes += 1;
                if responds {
                    self.note_response(core, v);
                }
                pc = begin;
                // A program without any length also takes time.
                ns += core.prices.unit_ns;
            }
            // By reference, because copying a step would go through memory and stall.
            let Instruction { step, permille, skip } = &self.steps[pc as usize];
            let run = &mut self.cpus[v].run;
            if !run.taken {
                if *permille < 1000 && !run.rng.chance(*permille) {
                    pc = begin + skip;
                    continue;
                }
                ns += core.prices.step_ns;
            }
            match step {
                Step::Work(Work::Iterations(draw)) => {
                    let iterations = u64::from(draw.from(&mut run.rng));
                    ns += core.clock.ns(iterations * core.prices.iteration_cycles);
                }
                Step::Work(work) => ns += self.rare_work_ns(core, v, *work),
                Step::Act(_) if ns > 0 => {
                    run.taken = true;
                    break;
                }
                Step::Act(_) => {
                    run.taken = false;
                    run.pc = pc + 1;
                    return true;
                }
            }
            self.cpus[v].run.taken = false;
            pc += 1;
        }
        let run = &mut self.cpus[v].run;
        run.pc = pc;
        run.doing = Doing::Work;
        run.remaining_ns = ns;
        false
    }

    /// The timer of a block ends at `at_ns`, and `v` is behind that block. If the block is the first
    /// step, this begins a pass.
    pub fn begins_at(&mut self, core: &Core, v: VcpuId, at_ns: u64) {
        let is_first = self.cpus[v].run.pc == self.vms[core.vcpus[v].vm].program + 1;
        if is_first {
            let t = self.cpus[v].thread;
            self.threads[t].due_ns = at_ns;
        }
    }

    /// The pass of `v` has ended.
    fn note_response(&mut self, core: &Core, v: VcpuId) {
        let due_ns = std::mem::take(&mut self.threads[self.cpus[v].thread].due_ns);
        let vm = &mut self.vms[core.vcpus[v].vm];
        let Some(responses) = vm.responses.as_mut().filter(|_| due_ns > 0) else { return };
        responses.add(core.cycles_fast(core.now_ns.saturating_sub(due_ns)));
    }

    fn rare_work_ns(&mut self, core: &mut Core, v: VcpuId, work: Work) -> u64 {
        match work {
            Work::Iterations(draw) => {
                let iterations = u64::from(self.draw(v, draw));
                core.clock.ns(iterations * core.prices.iteration_cycles)
            }
            Work::OfOneThread(which, draw) => {
                let iterations = u64::from(self.draw(v, draw));
                let is_it = self.thread_index(v) == self.number_of(core, v, which);
                if is_it {
                    core.clock.ns(iterations * core.prices.iteration_cycles)
                } else {
                    0
                }
            }
            Work::Share(draw) => {
                let lines = u64::from(self.draw(v, draw));
                let (whole_ns, far_ns) = self.share_ns(core, v, lines);
                self.cpus[v].run.cache_ns += far_ns;
                whole_ns
            }
        }
    }

    /// Performs the step that `v` has passed, which others notice. Returns its duration, ns;
    /// `None`: `v` waits.
    fn act(&mut self, core: &mut Core, v: VcpuId) -> Option<u64> {
        let Step::Act(ref act) = self.steps[self.cpus[v].run.pc as usize - 1].step else {
            unreachable!("vCPU {v} works on its own")
        };
        match *act {
            Act::Lock(number) => self.lock(core, v, number).then_some(core.prices.lock_ns),
            Act::Unlock(number) => {
                self.unlock(core, v, number);
                Some(core.prices.unlock_ns)
            }
            Act::Mutex(number) => self.mutex(core, v, number).then_some(core.prices.lock_ns),
            Act::MutexRead(number) => {
                self.mutex_read(core, v, number).then_some(core.prices.lock_ns)
            }
            Act::MutexUnlock(number) => {
                self.mutex_unlock(core, v, number);
                Some(core.prices.unlock_ns)
            }
            Act::Wake => {
                self.wake_next(core, v);
                Some(0)
            }
            Act::Block { ns, has_timer } => {
                let timer_ns = self.draw(v, ns);
                self.block(core, v, u64::from(timer_ns), has_timer);
                None
            }
            Act::Barrier(meet) => self.barrier(core, v, meet).then_some(0),
            Act::Serial(which, draw) => self.serial(core, v, which, draw).then_some(0),
            Act::SocketWait { capacity } => self.socket_wait(core, v, capacity).then_some(0),
            Act::SocketLock => {
                self.lock(core, v, self.socket_lock(v)).then_some(core.prices.lock_ns)
            }
            Act::SocketUnlock { capacity } => {
                self.unlock(core, v, self.socket_lock(v));
                self.socket_moved(core, v, capacity);
                Some(core.prices.unlock_ns)
            }
            Act::Shootdown { lazy, .. } => {
                let one_by_one = self.vms[core.vcpus[v].vm].handles_ipis;
                let goes_on = if one_by_one {
                    self.shootdown_one_by_one(core, v)
                } else {
                    self.shootdown(core, v, lazy)
                };
                goes_on.then_some(0)
            }
        }
    }

    /// Number of the thread that performs a step for one thread in the present pass of `v`.
    pub fn number_of(&self, core: &Core, v: VcpuId, which: OneThread) -> u32 {
        let passes = self.cpus[v].run.passes;
        let turn = match which {
            OneThread::First => 0,
            OneThread::Rotating => passes,
            OneThread::Moving => passes / u64::from(abi::UNITS_PER_MOVE),
        };
        (turn % u64::from(self.vms[core.vcpus[v].vm].threads)) as u32
    }

    /// Another vCPU has released `v`, which continues with `ns` (not 0) of work. It does nothing
    /// that others notice, so the vCPU that releases others is not called back.
    pub fn go_on_working(&mut self, core: &mut Core, v: VcpuId, ns: u64) {
        debug_assert!(ns > 0 && !self.cpus[v].wakes_next);
        let acts = self.work_on(core, v, ns);
        debug_assert!(!acts);
    }

    /// Time to read `lines` cache lines that the previous vCPU wrote, and the part of it that is
    /// due to another last-level cache, ns.
    pub fn share_ns(&self, core: &Core, v: VcpuId, lines: u64) -> (u64, u64) {
        let vcpu = &core.vcpus[v];
        let vm = &core.vms[vcpu.vm];
        let writer = vm.first + (vcpu.index + vm.vcpus - 1) % vm.vcpus;
        let near = core.clock.ns(lines * u64::from(core.model.costs.share_near_cycles));
        if core.domain(vcpu.on.pcpu) == core.domain(core.vcpus[writer].on.pcpu) {
            return (near, 0);
        }
        let far = core.clock.ns(lines * u64::from(core.model.costs.share_far_cycles)).max(near);
        (far, far - near)
    }
}
