// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who learns that a VM's vCPUs wait for each other: ASMan's Monitoring Module in the guest, or,
//! the guest unchanged, the host by its PLE exits.
//!
//! Weng, Liu, Yu, Li, "Dynamic Adaptive Scheduling for Virtual Machines" (ASMan), HPDC 2011,
//! sections 3.3, 4.2 and 4.3. The module reports a wait when it has lasted for the threshold, while
//! it goes on: an event that follows the end of HIGH "immediately", by less than Delta, as
//! Algorithm 2 expects it, could come of no report made when such a wait is over. Figure 2's last
//! for more than 2^25 cycles, as long as the lock's holder has no pCPU.

use crate::engine::{Event, VcpuId};
use crate::machine::Sim;
use crate::state::{Doing, State, Vm};
use unspin_scenario::plan::Coscheduling;

/// Spinning goes on as long as one PLE exit follows the last within so many windows of the vCPU's
/// time: one to spin, one for what lies between.
const BURST_WINDOWS: u64 = 2;

/// Long waits cluster where so few passes of locks lie between one and the next.
pub const NEIGHBOURS: u64 = 16;

/// PLE exits of one vCPU that belong to one wait, as far as the host can tell.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Burst {
    /// CPU time of the vCPU at the last one, ns.
    at_cpu_ns: u64,
    spun_cycles: u64,
}

impl Sim {
    /// `v`, running, spins for a lock: sets the timer at which its guest has seen enough.
    pub(crate) fn arm_report(&mut self, v: VcpuId) {
        let vcpu = &self.vcpus[v];
        if vcpu.doing != Doing::SpinLock || vcpu.wait.reported {
            return;
        }
        let in_guest_ns = self.now_ns + vcpu.host_ns();
        let at = in_guest_ns.max(vcpu.wait.began_ns.saturating_add(self.report_ns));
        self.queue.arm(Event::Report(v), at);
    }

    /// The timer has gone off; `v` may have been interrupted, or have its lock.
    pub(crate) fn report_wait(&mut self, v: VcpuId) {
        let vcpu = &self.vcpus[v];
        let spins = vcpu.doing == Doing::SpinLock && !vcpu.wait.reported;
        if !spins || vcpu.state != State::Running {
            return;
        }
        self.account(v);
        let vcpu = &self.vcpus[v];
        let waited_ns = self.now_ns - vcpu.wait.began_ns;
        if vcpu.host_ns() == 0 && waited_ns >= self.report_ns {
            self.report(v);
        }
        self.rearm(v);
    }

    /// An over-threshold wait of `v`, by a hypercall.
    fn report(&mut self, v: VcpuId) {
        let vcpu = &mut self.vcpus[v];
        vcpu.wait.reported = true;
        vcpu.exit_ns += self.ipi_ns;
        let vm = vcpu.vm;
        if let Some(credit) = &mut self.credit {
            credit.adjusting_event(vm, self.now_ns);
        }
    }

    /// The guest of `v` has waited for a spin-lock for so long, ASMan's Monitoring Module looks.
    pub(crate) fn watch_wait(&mut self, v: VcpuId, cycles: u64) {
        let Some(credit) = &mut self.credit else { return };
        if !credit.learner.is_over_threshold(cycles) {
            return;
        }
        let number = self.vcpus[v].vm;
        let Vm { first, vcpus, .. } = &self.vms[number];
        let (first, vcpus) = (*first, *vcpus);
        let own = self.vcpus.part(first, vcpus);
        let passes: u64 = own.iter().map(|v| v.acquisitions).sum();
        let before = std::mem::replace(&mut credit.long_at[number], passes);
        let stats = &mut credit.stats[number];
        stats.long_waits += 1;
        stats.long_neighbours += u64::from(passes.wrapping_sub(before) <= NEIGHBOURS);
        // It was off its pCPU when the threshold was over, and when it got the lock.
        let unseen = !self.vcpus[v].wait.reported;
        if credit.coscheduling == Coscheduling::Vcrd && unseen {
            self.report(v);
        }
    }

    /// A PLE exit of `v`, as all the host sees of a wait: windows that follow each other add up.
    pub(crate) fn watch_ple_exit(&mut self, v: VcpuId) {
        let Some(credit) = &mut self.credit else { return };
        if credit.coscheduling != Coscheduling::VcrdPle {
            return;
        }
        let vcpu = &self.vcpus[v];
        let burst = &mut credit.bursts[v];
        let cpu_ns = vcpu.cpu_ns();
        let goes_on = cpu_ns - burst.at_cpu_ns <= BURST_WINDOWS * vcpu.window_ns + self.switch_ns;
        burst.at_cpu_ns = cpu_ns;
        burst.spun_cycles = if goes_on { burst.spun_cycles } else { 0 };
        burst.spun_cycles += u64::from(vcpu.window_cycles);
        if credit.learner.is_over_threshold(burst.spun_cycles) {
            burst.spun_cycles = 0;
            credit.adjusting_event(vcpu.vm, self.now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::tests::two_vms;
    use crate::{Host, Kernel};

    /// Over 2^20 cycles of 200 MHz, and each wait once.
    #[test]
    fn a_wait_is_reported_once_and_while_it_goes_on() {
        let mut setup = two_vms();
        setup.host = Host::lab(4, Kernel::V3_19).with_credit(false);
        setup.run.arm.coscheduling = Coscheduling::Vcrd;
        let mut sim = setup.build().unwrap();
        let threshold_ns = (1 << 20) * 5;
        let (mut open, mut going_on) = (0, 0);
        for ms in 1..3000 {
            sim.run_until(ms * 1_000_000);
            open = 0;
            for v in sim.vcpus.iter().filter(|v| v.doing == Doing::SpinLock) {
                let waited_ns = sim.now_ns - v.wait.began_ns;
                assert!(!v.wait.reported || waited_ns >= threshold_ns, "{waited_ns} ns");
                // Who runs reports at once; it may have just come back, or be in an exit.
                let in_guest = v.state == State::Running && v.host_ns() == 0;
                assert!(v.wait.reported || !in_guest || waited_ns <= threshold_ns + 1);
                open += u64::from(v.wait.reported);
            }
            going_on += open;
        }
        let stats = sim.credit.as_ref().unwrap().stats.iter();
        let (events, ended) = stats.fold((0, 0), |(e, l), s| (e + s.events, l + s.long_waits));
        assert!(going_on > 0 && ended > 50, "{going_on}, {ended}");
        assert_eq!(events, ended + open);
    }
}
