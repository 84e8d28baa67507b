// SPDX-License-Identifier: MIT OR Apache-2.0
//! vCPUs of VMs that have used up their quota leave their queues, and return later (`bandwidth`).

use super::bandwidth::PERIOD_NS;
use super::fair::NONE;
use super::state::Scheduler;
use crate::core::{Core, State};
use crate::engine::{Event, PcpuId, VcpuId, VmId};

impl Scheduler {
    pub fn is_throttled(&self, v: VcpuId) -> bool {
        self.bandwidth.as_ref().is_some_and(|b| b.is_throttled(v))
    }

    /// Takes the running vCPU of `p` out of its queue if it has no time left.
    pub fn throttle_current(&mut self, p: PcpuId) {
        let v = self.queues[p].current;
        let Some(bandwidth) = &mut self.bandwidth else { return };
        if v == NONE || bandwidth.acquire(v) {
            return;
        }
        self.queues[p].put_back();
        self.throttle(p, v);
    }

    /// `v`, waiting in the queue of `p`, leaves it until there is time for it.
    fn throttle(&mut self, p: PcpuId, v: VcpuId) {
        if let Some(bandwidth) = &mut self.bandwidth {
            bandwidth.set_throttled(v, true);
        }
        self.queues[p].take(&self.tunables, &mut self.entities, v);
    }

    /// `v`, which has just been put into the queue of `p`, leaves it if it has no time. Whether it
    /// stays.
    pub fn may_queue(&mut self, p: PcpuId, v: VcpuId) -> bool {
        let Some(bandwidth) = &mut self.bandwidth else { return true };
        if bandwidth.acquire(v) {
            return true;
        }
        self.throttle(p, v);
        false
    }

    /// `v` sleeps: its siblings get the time that it does not need.
    pub fn give_back(&mut self, core: &mut Core, v: VcpuId) {
        let Some(bandwidth) = &mut self.bandwidth else { return };
        if bandwidth.slept(v) {
            let vm = bandwidth.vm_of(v);
            self.unthrottle(core, vm);
        }
    }

    /// A period begins.
    pub fn refill(&mut self, core: &mut Core) {
        for p in core.pcpus.ids() {
            if self.bill(core, p) {
                self.ask_reschedule(core, p);
            }
        }
        let Some(bandwidth) = &mut self.bandwidth else { return };
        bandwidth.refill();
        for vm in core.vms.ids() {
            self.unthrottle(core, vm);
        }
        core.events.arm(Event::BandwidthPeriod, core.now_ns + PERIOD_NS);
    }

    /// Throttled vCPUs of `vm` return, as far as there is time for them.
    fn unthrottle(&mut self, core: &mut Core, vm: VmId) {
        let Some(bandwidth) = &self.bandwidth else { return };
        for v in bandwidth.vcpus_of(vm) {
            let Some(bandwidth) = &mut self.bandwidth else { return };
            if !bandwidth.is_throttled(v) || !bandwidth.acquire(v) {
                continue;
            }
            bandwidth.set_throttled(v, false);
            debug_assert_eq!(core.vcpus[v].on.state, State::Ready);
            let p = core.vcpus[v].on.pcpu;
            let over = self.bill(core, p);
            let queue = &mut self.queues[p];
            queue.give(&self.tunables, &mut self.entities, v);
            if over || queue.preempts(&self.tunables, &mut self.entities, v) {
                self.ask_reschedule(core, p);
            }
        }
    }
}
