// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that all other parts share: where each vCPU is, how its time was spent, costs, and the
//! pending events. Parts above may change it; it calls none of them.

mod costs;
mod effect;
mod ledger;
mod model;
mod pcpu;
mod vcpu;

pub use costs::{Costs, GroupCosts, Prices};
pub use effect::Effect;
pub use ledger::{Cause, Class, CLASSES, ON_CPU_CLASSES};
pub use model::{CreditHost, Host, IdleState, Kernel};
pub use pcpu::Pcpu;
pub use vcpu::{Change, State, Vcpu};

use crate::engine::{Clock, Events, PcpuId, Table, VcpuId, VmId};

/// The vCPUs of a VM.
#[derive(Debug, Clone, Copy)]
pub struct Vm {
    /// Its vCPUs are `first..first + vcpus` of all.
    pub first: VcpuId,
    pub vcpus: u32,
    /// Exits for accesses to an APIC.
    pub apic_exits: u64,
}

pub struct Core {
    pub now_ns: u64,
    pub events: Events,
    pub clock: Clock,
    /// Cycles per ns, with 32 bits of fraction.
    pub cycles_per_ns_q32: u128,
    pub prices: Prices,
    pub model: Host,
    pub vcpus: Table<VcpuId, Vcpu>,
    pub pcpus: Table<PcpuId, Pcpu>,
    pub vms: Table<VmId, Vm>,
    /// The pCPU whose timer interrupt is being handled.
    pub interrupted: PcpuId,
    /// Effects of the guests on other parts; the machine handles them in this order.
    pub effects: Vec<Effect>,
    /// What the vCPUs of the first VM did since it is watched, if it is.
    pub changes: Option<Vec<Change>>,
}

impl Core {
    pub fn cycles_fast(&self, ns: u64) -> u64 {
        ((u128::from(ns) * self.cycles_per_ns_q32) >> 32) as u64
    }

    /// Time of `v` on a pCPU until now, ns, including time that is not accounted yet.
    pub fn cpu_ns(&self, v: VcpuId) -> u64 {
        let vcpu = &self.vcpus[v];
        let runs = vcpu.on.state == State::Running;
        let since_ns = if runs { self.now_ns - vcpu.ledger.since_ns } else { 0 };
        vcpu.ledger.cpu_ns() + since_ns
    }

    /// `v` is in this state from now on.
    #[inline]
    pub fn enter(&mut self, v: VcpuId, to: State) {
        let vcpu = &mut self.vcpus[v];
        vcpu.on.state = to;
        if let Some(changes) = self.changes.as_mut().filter(|_| vcpu.vm == VmId(0)) {
            changes.push(Change { at_ns: self.now_ns, vcpu: vcpu.index, to });
        }
    }

    /// Watches the first VM from now on: first come the present states of its vCPUs.
    pub fn watch(&mut self) {
        let of_first = self.vcpus.iter().filter(|vcpu| vcpu.vm == VmId(0));
        let at_ns = self.now_ns;
        let now = |v: &Vcpu| Change { at_ns, vcpu: v.index, to: v.on.state };
        self.changes = Some(of_first.map(now).collect());
    }

    /// Charges `v` with host time before its guest continues: for an exit, a switch, a tick, …
    #[inline]
    pub fn charge(&mut self, v: VcpuId, ns: u64, cause: Cause) {
        self.vcpus[v].ledger.owe_host(ns, cause);
    }

    /// Accounts `v` up to now, except for its guest's time, which is returned in ns. `None`: no
    /// time has passed.
    #[inline]
    pub fn account_host(&mut self, v: VcpuId) -> Option<u64> {
        let vcpu = &mut self.vcpus[v];
        let ns = self.now_ns - vcpu.ledger.since_ns;
        if ns == 0 {
            return None;
        }
        vcpu.ledger.since_ns = self.now_ns;
        Some(match vcpu.on.state {
            State::Halted => {
                vcpu.ledger.book(Class::Halted, ns);
                0
            }
            State::Ready => {
                vcpu.ledger.book(Class::Waiting, ns);
                0
            }
            State::Running => {
                let guest_ns = vcpu.ledger.pay_host(ns);
                vcpu.exit.in_ple_exit &= vcpu.ledger.exit_ns > 0;
                guest_ns
            }
        })
    }

    /// `v` is woken, or its pCPU is wanted: KVM stops polling. `v` has been accounted for.
    pub fn stop_halt_poll(&mut self, v: VcpuId) {
        let vcpu = &mut self.vcpus[v];
        if std::mem::take(&mut vcpu.exit.halt_polls) {
            vcpu.ledger.forgive_exit();
        }
    }

    /// An interrupt takes `v`, which runs and has been accounted, out of its guest and back. Its
    /// pause loop starts again.
    #[inline]
    pub fn interrupt(&mut self, v: VcpuId) {
        self.charge(v, self.prices.interrupt_ns, Cause::Ipi);
        let vcpu = &mut self.vcpus[v];
        vcpu.pauses.spun_ns = 0;
        if !self.model.apicv {
            self.vms[vcpu.vm].apic_exits += 1;
        }
    }

    /// `by` writes to its APIC for each of `count` siblings.
    pub fn send_ipis(&mut self, by: VcpuId, count: u32) {
        self.vms[self.vcpus[by].vm].apic_exits += u64::from(count);
        self.charge(by, self.prices.ipi_ns * u64::from(count), Cause::Ipi);
    }

    /// yield_to() on `a`, for a vCPU of `b`, requests the locks of both run queues at `at_ns`, like
    /// double_rq_lock(), and holds them. Returns how long it waits for other holders of either
    /// lock, ns.
    pub fn lock_queues(&mut self, a: PcpuId, b: PcpuId, at_ns: u64) -> u64 {
        let mut begin_ns = at_ns;
        for p in [a, b] {
            let locked_ns = self.pcpus[p].queue_locked_ns;
            if locked_ns > at_ns {
                begin_ns = begin_ns.max(locked_ns + self.prices.handoff_ns);
            }
        }
        for p in [a, b] {
            self.pcpus[p].queue_locked_ns = begin_ns + self.prices.queue_lock_ns;
        }
        begin_ns - at_ns
    }

    /// The other thread of the core of `p`, if cores have two.
    #[inline]
    pub fn sibling(&self, p: PcpuId) -> Option<PcpuId> {
        self.model.threads_share_cores.then_some(PcpuId(p.0 ^ 1))
    }

    /// Whether the other thread of the core of `p` runs a vCPU.
    #[inline]
    pub fn is_core_shared(&self, p: PcpuId) -> bool {
        self.sibling(p).is_some_and(|sibling| !self.pcpus[sibling].idle)
    }

    /// Work of a guest in this much time of a thread whose core is shared, ns.
    pub fn shared_work_ns(&self, ns: u64) -> u64 {
        (u128::from(ns) * u128::from(self.model.thread_speed_percent) / 100) as u64
    }

    /// Time for this much work on a thread whose core is shared, ns.
    pub fn shared_time_ns(&self, work_ns: u64) -> u64 {
        let percent = u128::from(self.model.thread_speed_percent);
        (u128::from(work_ns) * 100).div_ceil(percent) as u64
    }

    /// The last-level cache of a pCPU.
    #[inline]
    pub fn domain(&self, p: PcpuId) -> u32 {
        self.model.llc_pcpus.map_or(0, |size| p.0 / size.max(1))
    }

    /// Whether the host needs time from an exit to its decision, as measured. Otherwise it decides
    /// at once, and the exit is paid when the vCPU continues.
    #[inline]
    pub fn times_handling(&self) -> bool {
        self.model.costs.decide_cycles > 0 && self.model.credit.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Layout;
    use proptest::prelude::*;

    /// A host whose yields lock run queues for 100 ns, and whose locks change hands in no time.
    fn core(pcpus: u32) -> Core {
        let mut model = Host::lab(pcpus, Kernel::V6_12);
        model.costs.handoff_cycles = 0;
        model.costs.queue_lock_cycles = 20;
        let clock = Clock::new(model.khz);
        Core {
            now_ns: 0,
            events: Events::new(Layout::new(pcpus, 0, 0, 0, false, false)),
            clock,
            cycles_per_ns_q32: 0,
            prices: Prices::of(&model.costs, &clock),
            model,
            vcpus: Table::with_capacity(0),
            pcpus: vec![Pcpu::NEW; pcpus as usize].into(),
            vms: Table::with_capacity(0),
            interrupted: PcpuId::NONE,
            effects: Vec::new(),
            changes: None,
        }
    }

    proptest! {
        /// Of consecutive yields no two hold the lock of one run queue at the same time, and none waits
        /// without need.
        #[test]
        fn run_queues_are_locked_by_one(
            yields in prop::collection::vec((0..150u64, 0..4u32, 0..4u32), 1..60),
        ) {
            let mut core = core(4);
            let mut now_ns = 1_000;
            let mut free_ns = [0u64; 4];
            for (after_ns, a, b) in yields {
                now_ns += after_ns;
                let begin_ns = now_ns + core.lock_queues(PcpuId(a), PcpuId(b), now_ns);
                let due_ns = now_ns.max(free_ns[a as usize]).max(free_ns[b as usize]);
                prop_assert_eq!(begin_ns, due_ns);
                for p in [a, b] {
                    free_ns[p as usize] = begin_ns + 100;
                }
            }
        }
    }
}
