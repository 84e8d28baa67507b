// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU bandwidth of the fair scheduler (`cpu.max`): a VM gets at most its own quota, or on a capped
//! host its weight's share, even if others sleep.
//!
//! After `kernel/sched/fair.c`: a VM has a quota per period of 100 ms. A vCPU takes it in slices of
//! 5 ms, and is throttled when it has none left and none can be taken. When a vCPU goes to sleep,
//! what it has beyond a millisecond is returned. A throttled vCPU is in no queue until the next
//! period, or until a sibling has returned a slice. As in the kernel, the last slice is overdrawn
//! up to the next tick, and this is deducted from the next slice.

use crate::core::Host;
use crate::engine::{Table, VcpuId, VmId};

/// sched_cfs_period_us.
pub const PERIOD_NS: u64 = 100_000_000;
/// sched_cfs_bandwidth_slice_us, and min_cfs_rq_runtime.
const SLICE_NS: i64 = 5_000_000;
const KEPT_ASLEEP_NS: i64 = 1_000_000;

/// The quota per period of a VM without one: more than any host has.
const UNLIMITED_NS: i64 = i64::MAX / 4;

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
    /// Time that it may still run; negative: overdrawn.
    left_ns: i64,
    throttled: bool,
}

/// The quota of every VM, and the time used.
#[derive(Debug, Default)]
pub struct Bandwidth {
    pools: Table<VmId, Pool>,
    shares: Table<VcpuId, Share>,
}

impl Bandwidth {
    /// Adds a VM of `vcpus` vCPUs whose part of `host` is `part` of a whole, or without limit. The part
    /// is at most what its vCPUs can use.
    pub fn add_vm(&mut self, host: &Host, vcpus: u32, part: Option<(u64, u64)>) {
        let quota_ns = part.map_or(UNLIMITED_NS, |(part, whole)| {
            let all = u128::from(PERIOD_NS) * u128::from(host.pcpus) * u128::from(part);
            let usable = u128::from(PERIOD_NS) * u128::from(vcpus);
            (all / u128::from(whole.max(1))).min(usable) as i64
        });
        let first = VcpuId(self.shares.len() as u32);
        let vm = self.pools.push(Pool { quota_ns, left_ns: 0, first, vcpus });
        self.shares.extend((0..vcpus).map(|_| Share { vm, left_ns: 0, throttled: false }));
    }

    pub fn is_throttled(&self, v: VcpuId) -> bool {
        self.shares[v].throttled
    }

    pub fn set_throttled(&mut self, v: VcpuId, throttled: bool) {
        self.shares[v].throttled = throttled;
    }

    /// The VM of `v`, whose vCPUs share a quota.
    pub fn vm_of(&self, v: VcpuId) -> VmId {
        self.shares[v].vm
    }

    pub fn vcpus_of(&self, vm: VmId) -> impl Iterator<Item = VcpuId> {
        let Pool { first, vcpus, .. } = self.pools[vm];
        first.and_next(vcpus)
    }

    /// A period begins: every VM has its quota again.
    pub fn refill(&mut self) {
        self.pools.iter_mut().for_each(|pool| pool.left_ns = pool.quota_ns);
    }

    /// `v` ran for `ns`. Returns whether it must stop.
    pub fn ran(&mut self, v: VcpuId, ns: u64) -> bool {
        self.shares[v].left_ns -= ns as i64;
        !self.acquire(v)
    }

    /// Takes a slice for `v` if it has nothing left. Returns whether it may run.
    pub fn acquire(&mut self, v: VcpuId) -> bool {
        let share = &mut self.shares[v];
        if share.left_ns <= 0 {
            let pool = &mut self.pools[share.vm];
            let taken = (SLICE_NS - share.left_ns).min(pool.left_ns);
            pool.left_ns -= taken;
            share.left_ns += taken;
        }
        share.left_ns > 0
    }

    /// `v` goes to sleep. Returns whether siblings may use the time that it leaves.
    pub fn slept(&mut self, v: VcpuId) -> bool {
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
