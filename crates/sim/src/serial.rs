// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sequential section of fork and join: every thread joins and sleeps, one works, then all are
//! woken. Who has nothing to do in it is not woken for it, unlike with a barrier before and after:
//! a pool of threads whose master works between commands, as PARSEC's bodytrack and facesim have it.

use crate::engine::{ThreadId, VcpuId};
use crate::machine::Sim;
use crate::program::{Draw, Turn};
use crate::state::{Doing, State};

impl Sim {
    /// `v`, running and past the step, has joined, or has done the section's work. Whether it goes
    /// on at once.
    pub(crate) fn serial(&mut self, v: VcpuId, turn: Turn, length: Draw) -> bool {
        self.vcpus[v].in_turn = false;
        let vm = self.vcpus[v].vm;
        if self.vms[vm].barrier.serial {
            // Only whose turn it is comes here twice.
            self.vms[vm].barrier.serial = false;
            self.open(v);
            return true;
        }
        self.vms[vm].barrier.arrived += 1;
        if self.vms[vm].barrier.arrived < self.vms[vm].threads {
            self.wait_at_barrier(v, Some(0));
            return false;
        }
        self.vms[vm].barrier.serial = true;
        let turn = self.turn(v, turn);
        // From the numbers of who came last, as whose turn it is may be asleep.
        let iterations = u64::from(self.draw(v, length));
        let work_ns = self.clock.ns(iterations * self.iteration_cycles).max(self.unit_ns);
        if turn == self.thread_index(v) {
            let vcpu = &mut self.vcpus[v];
            vcpu.doing = Doing::Work;
            vcpu.remaining_ns = work_ns;
            (vcpu.pc, vcpu.taken) = (vcpu.pc - 1, true);
            return false;
        }
        self.begin_serial(v, self.vms[vm].first_thread + turn, work_ns);
        self.wait_at_barrier(v, Some(0));
        false
    }

    /// `by` was the last to join; `t`, which has joined, works for `ns`.
    fn begin_serial(&mut self, by: VcpuId, t: ThreadId, ns: u64) {
        if self.has_scheduler(by) {
            // A thread that has joined is asleep, but for one still on its way there.
            let away = &mut self.threads[t].away;
            (away.arrived, away.doing, away.remaining_ns) = (false, Doing::Work, ns);
            (away.pc, away.taken) = (away.pc - 1, true);
            self.wake_thread(Some(by), t);
            return;
        }
        let u = self.threads[t].home;
        self.account(u);
        let vcpu = &mut self.vcpus[u];
        let polls = vcpu.doing == Doing::SpinBarrier;
        vcpu.arrived = false;
        vcpu.doing = Doing::Work;
        vcpu.remaining_ns = ns;
        (vcpu.pc, vcpu.taken) = (vcpu.pc - 1, true);
        let state = vcpu.state;
        let barrier = &mut self.vms[vcpu.vm].barrier;
        barrier.sleepers -= u32::from(!polls);
        if state != State::Running {
            barrier.missing_off += 1;
            barrier.off.set(true, self.now_ns);
        }
        self.stop_halt_poll(u);
        if state != State::Halted {
            self.rearm(u);
            return;
        }
        self.send_ipis(by, 1);
        self.note_waker(u, by);
        self.wake(u);
    }
}
