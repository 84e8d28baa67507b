// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mutexes: locks whose waiters sleep.

use super::super::state::{Doing, Guest};
use crate::core::Core;
use crate::engine::{ThreadId, VcpuId};

impl Guest {
    /// Whether the thread on `v` has the mutex at once; else it sleeps, and tries again when it is
    /// woken.
    pub fn mutex(&mut self, core: &mut Core, v: VcpuId, number: u32) -> bool {
        let vm = core.vcpus[v].vm;
        let t = self.cpus[v].thread;
        let mutex = &mut self.vms[vm].mutexes[number as usize];
        if mutex.owner == ThreadId::NONE {
            mutex.owner = t;
            self.cpus[v].acquisitions += 1;
            self.vms[vm].wait_hist[self.lock_bucket] += 1;
            return true;
        }
        mutex.waiters.push_back(t);
        let vcpu = &mut self.cpus[v];
        vcpu.run.pc -= 1;
        vcpu.run.taken = true;
        vcpu.run.doing = Doing::Work;
        vcpu.run.remaining_ns = core.prices.guest_switch_ns.max(core.prices.unit_ns);
        self.park(core, v);
        false
    }

    pub fn mutex_unlock(&mut self, core: &mut Core, v: VcpuId, number: u32) {
        let vm = core.vcpus[v].vm;
        let mutex = &mut self.vms[vm].mutexes[number as usize];
        mutex.owner = ThreadId::NONE;
        if let Some(t) = mutex.waiters.pop_front() {
            self.wake_thread(core, Some(v), t);
        }
    }
}
