// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sequential section of fork and join: every thread joins and sleeps, one works, then all are
//! woken. Unlike with a barrier before and after, threads without work in the section are not woken
//! for it: a pool of threads whose master works between commands, as in PARSEC's bodytrack and
//! facesim.

use super::super::program::{Draw, OneThread};
use super::super::state::{Doing, Guest};
use crate::core::{Core, State};
use crate::engine::{ThreadId, VcpuId};

impl Guest {
    /// `v`, running and past the step, has joined, or has done the section's work. Returns whether
    /// it continues at once.
    pub fn serial(&mut self, core: &mut Core, v: VcpuId, which: OneThread, length: Draw) -> bool {
        self.cpus[v].wakes_each_other = false;
        let vm = core.vcpus[v].vm;
        if self.vms[vm].barrier.serial {
            // Only the thread that does the work comes here twice.
            self.vms[vm].barrier.serial = false;
            self.open(core, v);
            return true;
        }
        self.vms[vm].barrier.arrived += 1;
        if self.vms[vm].barrier.arrived < self.vms[vm].threads {
            self.wait_at_barrier(core, v, Some(0));
            return false;
        }
        self.vms[vm].barrier.serial = true;
        let worker = self.number_of(core, v, which);
        // Drawn from the random numbers of the last to arrive, because the thread that works may be
        // asleep.
        let iterations = u64::from(self.draw(v, length));
        let work_ns =
            core.clock.ns(iterations * core.prices.iteration_cycles).max(core.prices.unit_ns);
        if worker == self.thread_index(v) {
            let vcpu = &mut self.cpus[v];
            vcpu.run.doing = Doing::Work;
            vcpu.run.remaining_ns = work_ns;
            (vcpu.run.pc, vcpu.run.taken) = (vcpu.run.pc - 1, true);
            return false;
        }
        self.begin_serial(core, v, self.vms[vm].first_thread + worker, work_ns);
        self.wait_at_barrier(core, v, Some(0));
        false
    }

    /// `by` was the last to join; `t`, which has joined, works for `ns`.
    fn begin_serial(&mut self, core: &mut Core, by: VcpuId, t: ThreadId, ns: u64) {
        if self.has_scheduler(core, by) {
            // Threads that have joined are asleep, except those on their way to sleep.
            let away = &mut self.threads[t].away;
            (away.arrived, away.doing, away.remaining_ns) = (false, Doing::Work, ns);
            (away.pc, away.taken) = (away.pc - 1, true);
            self.wake_thread(core, Some(by), t);
            return;
        }
        let u = self.threads[t].home;
        self.account(core, u);
        let vcpu = &mut self.cpus[u];
        let polls = vcpu.run.doing == Doing::SpinBarrier;
        vcpu.run.arrived = false;
        vcpu.run.doing = Doing::Work;
        vcpu.run.remaining_ns = ns;
        (vcpu.run.pc, vcpu.run.taken) = (vcpu.run.pc - 1, true);
        let state = core.vcpus[u].on.state;
        let barrier = &mut self.vms[core.vcpus[u].vm].barrier;
        barrier.sleepers -= u32::from(!polls);
        if state != State::Running {
            barrier.missing_off += 1;
            barrier.off.set(true, core.now_ns);
        }
        core.stop_halt_poll(u);
        if state != State::Halted {
            self.touch(core, u);
            return;
        }
        core.send_ipis(by, 1);
        self.note_waker(core, u, by);
        self.wake(core, u);
    }
}
