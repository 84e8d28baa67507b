// SPDX-License-Identifier: MIT OR Apache-2.0
//! When pCPUs balance, for its effect on groups' loads: it publishes those of sleeping vCPUs
//! (`groups`). No vCPU is moved.
//!
//! After `rebalance_domains()`, `idle_balance()` and `nohz_idle_balance()` of `kernel/sched/fair.c`
//! (3.19). If nothing has to be moved, a domain's interval is twice as many ms as it has CPUs, and
//! 32 times that on a busy CPU (`busy_factor`). The lowest domain decides: the CPUs of a last-level
//! cache. So a busy one balances every 64 ms per CPU of its cache: 0.51 s for 8, 1.02 s for 16.

use super::state::Scheduler;
use crate::core::{Core, State};
use crate::engine::PcpuId;

/// `busy_factor` of a scheduling domain.
const BUSY_FACTOR: u64 = 32;
/// A pCPU that is expected to idle for less does not balance first (`sysctl_sched_migration_cost`).
const WORTH_NS: u64 = 500_000;

impl Scheduler {
    /// Interval between two balancings of an idle pCPU, ns.
    fn balance_idle_ns(&self, core: &Core) -> u64 {
        2_000_000
            * u64::from(core.model.llc_pcpus.unwrap_or(core.model.pcpus).min(core.model.pcpus))
    }

    /// `p`, busy, ticks: it may be due to balance, and so may the idle ones.
    pub fn balance_at_tick(&mut self, core: &mut Core, p: PcpuId) {
        let now = core.now_ns;
        let every_ns = self.balance_idle_ns(core);
        if now >= core.pcpus[p].balance_ns {
            // No longer than a tenth of a second per CPU of the host (max_load_balance_interval).
            let busy_ns = (BUSY_FACTOR * every_ns).min(100_000_000 * u64::from(core.model.pcpus));
            core.pcpus[p].balanced_ns = now;
            core.pcpus[p].balance_ns = now + busy_ns;
            self.publish_sleepers(core, Some(p));
        }
        if now >= self.nohz_balance_ns {
            self.nohz_balance_ns = now + every_ns;
            self.publish_sleepers(core, None);
        }
    }

    /// `p` has no vCPU to run from now on.
    pub fn balance_when_idle(&mut self, core: &mut Core, p: PcpuId) {
        let every_ns = self.balance_idle_ns(core);
        let pcpu = &mut core.pcpus[p];
        pcpu.balance_ns = pcpu.balance_ns.min(pcpu.balanced_ns + every_ns);
        if pcpu.idle_guess_ns >= WORTH_NS {
            self.publish_sleepers(core, Some(p));
        }
    }

    /// Publishes what is left of the load of sleeping vCPUs on that pCPU, or on all idle ones.
    fn publish_sleepers(&mut self, core: &mut Core, on: Option<PcpuId>) {
        let Some(groups) = &mut self.groups else { return };
        for (v, vcpu) in core.vcpus.rows() {
            let there = on.map_or(core.pcpus[vcpu.on.pcpu].idle, |p| vcpu.on.pcpu == p);
            if vcpu.on.state == State::Halted && there {
                groups.refresh(v, core.now_ns);
            }
        }
    }
}
