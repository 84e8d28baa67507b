// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invariants of a machine.

use super::Sim;
use crate::core::State;
use crate::engine::VcpuId;
use crate::host::Policy;

impl Sim {
    /// Invariants: each vCPU has as much time as has passed, each pCPU's busy time is that of its
    /// vCPUs, and every vCPU is in exactly one queue or in none.
    pub(super) fn check(&self) {
        let now = self.core.now_ns;
        let mut busy_ns = 0;
        for (v, vcpu) in self.core.vcpus.rows() {
            let sum: u64 = vcpu.ledger.time_ns.iter().sum();
            assert_eq!(sum, now, "the times of vCPU {v} do not add up");
            busy_ns += vcpu.ledger.cpu_ns();
            let current = self.host.queues[vcpu.on.pcpu].current == v;
            let waits = self.host.queues.iter().flat_map(|q| &q.waiting).filter(|&&w| w == v);
            let expected = match vcpu.on.state {
                State::Halted => (false, 0),
                State::Ready => (false, usize::from(!self.host.is_out(v))),
                State::Running => (true, 0),
            };
            assert_eq!((current, waits.count()), expected, "vCPU {v} is not where it should be");
        }
        let mut pcpu_busy_ns = 0;
        for (p, pcpu) in self.core.pcpus.rows() {
            let idles = self.host.queues[p].current == VcpuId::NONE;
            assert_eq!(idles, pcpu.idle, "pCPU {p} is idle and is not");
            let idle_ns = pcpu.idle_ns + if idles { now - pcpu.idle_since_ns } else { 0 };
            pcpu_busy_ns += now - idle_ns;
            let waiting = &self.host.queues[p].waiting;
            let none_may = match &self.host.policy {
                Policy::Fair => false,
                Policy::Credit(credit) => credit.may_idle(p, waiting, now),
            };
            let left_idle = idles && !waiting.is_empty() && !none_may;
            assert!(
                !left_idle || self.host.is_asked(&self.core, p),
                "pCPU {p} idles though somebody waits"
            );
        }
        assert_eq!(busy_ns, pcpu_busy_ns, "pCPUs were busy for other than their vCPUs");
    }
}
