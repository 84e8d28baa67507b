// SPDX-License-Identifier: MIT OR Apache-2.0
//! ASMan's Monitoring Module in the guest's kernel: it watches how long waits for spin-locks last,
//! and reports those over the threshold to the host.
//!
//! Weng, Liu, Yu, Li, "Dynamic Adaptive Scheduling for Virtual Machines" (ASMan), HPDC 2011,
//! sections 3.3, 4.2 and 4.3. The module reports a wait while it goes on, when it has lasted for
//! the threshold. Algorithm 2 expects events that follow the end of HIGH "immediately", by less
//! than Delta; reports made only after a wait could not cause them. The waits of figure 2 last for
//! more than 2^25 cycles, as long as the lock's holder has no pCPU.

use super::state::{Doing, Guest};
use crate::core::{Cause, Core, Effect, State};
use crate::engine::{Event, VcpuId};

impl Guest {
    /// `v`, running, spins for a lock: sets the timer after which its guest reports the wait.
    pub fn arm_report(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &self.cpus[v];
        if vcpu.run.doing != Doing::SpinLock || vcpu.wait.reported {
            return;
        }
        let in_guest_ns = core.now_ns + core.vcpus[v].ledger.host_ns();
        let at = in_guest_ns.max(vcpu.wait.began_ns.saturating_add(self.report_ns));
        core.events.arm(Event::Report(v), at);
    }

    /// The timer fired. `v` may have been interrupted, or have its lock.
    pub fn report_wait(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &self.cpus[v];
        let spins = vcpu.run.doing == Doing::SpinLock && !vcpu.wait.reported;
        if !spins || core.vcpus[v].on.state != State::Running {
            return;
        }
        self.account(core, v);
        let vcpu = &self.cpus[v];
        let waited_ns = core.now_ns - vcpu.wait.began_ns;
        if core.vcpus[v].ledger.host_ns() == 0 && waited_ns >= self.report_ns {
            self.report(core, v);
        }
        self.touch(core, v);
    }

    /// An over-threshold wait of `v`, by a hypercall.
    fn report(&mut self, core: &mut Core, v: VcpuId) {
        self.cpus[v].wait.reported = true;
        core.charge(v, core.prices.ipi_ns, Cause::Other);
        core.effects.push(Effect::Reported(core.vcpus[v].vm));
    }

    /// The guest of `v` has waited for a spin-lock for this long.
    pub(super) fn watch_wait(&mut self, core: &mut Core, v: VcpuId, cycles: u64) {
        if !self.monitor.is_some_and(|params| params.is_over_threshold(cycles)) {
            return;
        }
        let vm = core.vcpus[v].vm;
        let crate::core::Vm { first, vcpus, .. } = core.vms[vm];
        let passes = self.cpus.part(first, vcpus).iter().map(|cpu| cpu.acquisitions).sum();
        core.effects.push(Effect::LongWait { vm, passes });
        // It had no pCPU when the threshold was over, and when it got the lock.
        if self.report_ns != u64::MAX && !self.cpus[v].wait.reported {
            self.report(core, v);
        }
    }
}
