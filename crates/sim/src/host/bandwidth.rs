// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU bandwidth of the fair scheduler (`cpu.max`): no VM gets more than its weight's share of the
//! host, whoever else sleeps.
//!
//! After `kernel/sched/fair.c`: a VM has a quota a period of 100 ms. A vCPU takes it in slices of
//! 5 ms and is throttled when it has none left and there is none to take; what a vCPU that goes to
//! sleep has over a millisecond goes back. A throttled vCPU is in no queue until the next period,
//! or until a sibling has given back a slice. As in the kernel the last slice is overdrawn up to
//! the next tick, and is paid back from the next.

use super::fair::NONE;
use super::Scheduler;
use crate::core::{Core, Host, State};
use crate::engine::{Event, PcpuId, Table, VcpuId, VmId};

const PERIOD_NS: u64 = 100_000_000;
/// sched_cfs_bandwidth_slice_us, and min_cfs_rq_runtime.
const SLICE_NS: i64 = 5_000_000;
const KEPT_ASLEEP_NS: i64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
struct Pool {
    quota_ns: i64,
    left_ns: i64,
    first: VcpuId,
    vcpus: u32,
}

#[derive(Debug, Clone, Copy)]
struct Share {
    vm: VmId,
    /// What it may run; below zero: overdrawn.
    left_ns: i64,
    throttled: bool,
}

/// What every VM may use and has used.
#[derive(Debug, Default)]
pub struct Bandwidth {
    pools: Table<VmId, Pool>,
    shares: Table<VcpuId, Share>,
}

impl Bandwidth {
    /// A VM of `vcpus` vCPUs whose part of `host` is `part` of `whole`; more than its vCPUs can use
    /// is no use to it.
    pub fn add_vm(&mut self, host: &Host, vcpus: u32, part: u64, whole: u64) {
        let all = u128::from(PERIOD_NS) * u128::from(host.pcpus) * u128::from(part);
        let quota = (all / u128::from(whole.max(1))).min(u128::from(PERIOD_NS) * u128::from(vcpus));
        let first = VcpuId(self.shares.len() as u32);
        let vm = self.pools.push(Pool { quota_ns: quota as i64, left_ns: 0, first, vcpus });
        self.shares.extend((0..vcpus).map(|_| Share { vm, left_ns: 0, throttled: false }));
    }

    pub fn is_throttled(&self, v: VcpuId) -> bool {
        self.shares[v].throttled
    }

    /// `v` ran for `ns`. Whether it may not go on.
    pub fn ran(&mut self, v: VcpuId, ns: u64) -> bool {
        self.shares[v].left_ns -= ns as i64;
        !self.acquire(v)
    }

    /// Takes a slice for `v` where it has nothing left. Whether it may run.
    fn acquire(&mut self, v: VcpuId) -> bool {
        let share = &mut self.shares[v];
        if share.left_ns <= 0 {
            let pool = &mut self.pools[share.vm];
            let taken = (SLICE_NS - share.left_ns).min(pool.left_ns);
            pool.left_ns -= taken;
            share.left_ns += taken;
        }
        share.left_ns > 0
    }

    /// `v` goes to sleep. Whether siblings may have what it leaves.
    fn slept(&mut self, v: VcpuId) -> bool {
        let share = &mut self.shares[v];
        let over = share.left_ns - KEPT_ASLEEP_NS;
        if over <= 0 {
            return false;
        }
        share.left_ns = KEPT_ASLEEP_NS;
        let pool = &mut self.pools[share.vm];
        pool.left_ns += over;
        pool.left_ns >= SLICE_NS
    }
}

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

    /// `v`, which waits in the queue of `p`, leaves it until there is time for it.
    fn throttle(&mut self, p: PcpuId, v: VcpuId) {
        if let Some(bandwidth) = &mut self.bandwidth {
            bandwidth.shares[v].throttled = true;
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

    /// `v` sleeps: what it does not need is its siblings'.
    pub fn give_back(&mut self, core: &mut Core, v: VcpuId) {
        let Some(bandwidth) = &mut self.bandwidth else { return };
        if bandwidth.slept(v) {
            let vm = bandwidth.shares[v].vm;
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
        bandwidth.pools.iter_mut().for_each(|pool| pool.left_ns = pool.quota_ns);
        for vm in core.vms.ids() {
            self.unthrottle(core, vm);
        }
        core.events.arm(Event::BandwidthPeriod, core.now_ns + PERIOD_NS);
    }

    /// Throttled vCPUs of `vm` come back as far as there is time for them.
    fn unthrottle(&mut self, core: &mut Core, vm: VmId) {
        let Some(bandwidth) = &self.bandwidth else { return };
        let Pool { first, vcpus, .. } = bandwidth.pools[vm];
        for v in first.and_next(vcpus) {
            let Some(bandwidth) = &mut self.bandwidth else { return };
            if !bandwidth.is_throttled(v) || !bandwidth.acquire(v) {
                continue;
            }
            bandwidth.shares[v].throttled = false;
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
