// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mutexes: locks whose waiters sleep. They may be shared by readers.

use super::super::state::{Doing, Guest};
use crate::core::Core;
use crate::engine::{ThreadId, VcpuId, VmId};

impl Guest {
    /// Whether the thread on `v` has the mutex at once; else it sleeps, and tries again when it is
    /// woken.
    pub fn mutex(&mut self, core: &mut Core, v: VcpuId, number: u32) -> bool {
        let vm = core.vcpus[v].vm;
        let t = self.cpus[v].thread;
        let mutex = &mut self.vms[vm].mutexes[number as usize];
        if mutex.owner == ThreadId::NONE && mutex.readers == 0 {
            mutex.owner = t;
            self.count_mutex(vm, v);
            return true;
        }
        mutex.waiters.push_back((t, false));
        mutex.writers_waiting += 1;
        let vcpu = &mut self.cpus[v];
        vcpu.run.pc -= 1;
        vcpu.run.taken = true;
        self.sleep_for_mutex(core, v);
        false
    }

    /// Whether the thread on `v` may read at once what the mutex guards. If not, it sleeps, and may
    /// read when it is woken.
    pub fn mutex_read(&mut self, core: &mut Core, v: VcpuId, number: u32) -> bool {
        let vm = core.vcpus[v].vm;
        let t = self.cpus[v].thread;
        let mutex = &mut self.vms[vm].mutexes[number as usize];
        let free = mutex.owner == ThreadId::NONE && mutex.writers_waiting == 0;
        if free {
            mutex.readers += 1;
        } else {
            mutex.waiters.push_back((t, true));
        }
        self.count_mutex(vm, v);
        if !free {
            self.sleep_for_mutex(core, v);
        }
        free
    }

    fn count_mutex(&mut self, vm: VmId, v: VcpuId) {
        self.cpus[v].acquisitions += 1;
        self.vms[vm].wait_hist[self.lock_bucket] += 1;
    }

    fn sleep_for_mutex(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &mut self.cpus[v];
        vcpu.run.doing = Doing::Work;
        vcpu.run.remaining_ns = core.prices.guest_switch_ns.max(core.prices.unit_ns);
        self.park(core, v);
    }

    /// The thread on `v` releases the mutex, which it holds alone or as a reader.
    pub fn mutex_unlock(&mut self, core: &mut Core, v: VcpuId, number: u32) {
        let vm = core.vcpus[v].vm;
        let mutex = &mut self.vms[vm].mutexes[number as usize];
        if mutex.owner == ThreadId::NONE {
            assert!(mutex.readers > 0, "vCPU {v} releases a mutex it does not hold");
            mutex.readers -= 1;
            if mutex.readers > 0 {
                return;
            }
        }
        mutex.owner = ThreadId::NONE;
        let mut next = mutex.waiters.pop_front();
        if let Some((t, false)) = next {
            mutex.writers_waiting -= 1;
            self.wake_thread(core, Some(v), t);
            return;
        }
        while let Some((t, _)) = next {
            self.vms[vm].mutexes[number as usize].readers += 1;
            self.wake_thread(core, Some(v), t);
            let waiters = &mut self.vms[vm].mutexes[number as usize].waiters;
            let reads = waiters.front().is_some_and(|(_, reads)| *reads);
            next = if reads { waiters.pop_front() } else { None };
        }
    }
}
