// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guests' time: how a vCPU spent it, and when its action ends.

use super::state::{Doing, Guest};
use crate::core::{Class, Core, State};
use crate::engine::{Event, LockId, VcpuId};

impl Guest {
    /// Accounts the time of `v` up to now, and subtracts it from the time that its action still
    /// takes.
    #[inline]
    pub fn account(&mut self, core: &mut Core, v: VcpuId) {
        match core.account_host(v) {
            None => {}
            Some(0) => self.mark_off_clock(core, v),
            Some(ns) => self.account_guest(core, v, ns),
        }
    }

    /// `v` did not spin until now, so earlier absences of others do not matter for its next wait.
    #[inline]
    pub fn mark_off_clock(&mut self, core: &mut Core, v: VcpuId) {
        let vcpu = &mut self.cpus[v];
        vcpu.off_mark_ns = match vcpu.run.doing {
            Doing::SpinLock => self.locks[vcpu.wait.lock].off.at(core.now_ns),
            Doing::SpinBarrier => self.vms[core.vcpus[v].vm].barrier.off.at(core.now_ns),
            Doing::Work
            | Doing::HaltBarrier
            | Doing::HaltBlock
            | Doing::HaltLock
            | Doing::SpinAck
            | Doing::SendIpis
            | Doing::Poll => return,
        };
    }

    fn account_guest(&mut self, core: &mut Core, v: VcpuId, ns: u64) {
        let vcpu = &mut self.cpus[v];
        let off_ns = match vcpu.run.doing {
            Doing::Work => {
                let work_ns = if core.vcpus[v].shares_core { core.shared_work_ns(ns) } else { ns };
                assert!(
                    work_ns <= vcpu.run.remaining_ns,
                    "vCPU {v} worked longer than it had work"
                );
                vcpu.run.remaining_ns -= work_ns;
                core.vcpus[v].ledger.time_ns[Class::Useful as usize] += ns;
                if vcpu.run.cache_ns > 0 {
                    let far = work_ns.min(vcpu.run.cache_ns);
                    vcpu.run.cache_ns -= far;
                    core.vcpus[v].ledger.far_ns += far;
                }
                return;
            }
            Doing::SpinLock => {
                vcpu.wait.spun(core.now_ns, ns);
                self.locks[vcpu.wait.lock].off.at(core.now_ns)
            }
            Doing::SpinBarrier => {
                if vcpu.run.remaining_ns != u64::MAX {
                    assert!(ns <= vcpu.run.remaining_ns, "vCPU {v} spun longer than it may");
                    vcpu.run.remaining_ns -= ns;
                }
                self.vms[core.vcpus[v].vm].barrier.off.at(core.now_ns)
            }
            Doing::SpinAck => {
                if vcpu.acks_missing == 0 {
                    vcpu.run.remaining_ns -= ns;
                }
                let (missing, mark_ns) = (vcpu.acks_missing > 0, vcpu.off_mark_ns);
                // All vCPUs for which it waits have no pCPU, or none has, unless they answer late.
                let late = self.vms[core.vcpus[v].vm].handles_ipis;
                mark_ns + if missing && (!late || self.awaits_preempted(core, v)) { ns } else { 0 }
            }
            Doing::Poll => vcpu.off_mark_ns,
            Doing::HaltBarrier | Doing::HaltBlock | Doing::HaltLock => {
                panic!("vCPU {v} did not halt when it should have")
            }
            Doing::SendIpis => panic!("vCPU {v} did not send when it should have"),
        };
        let vcpu = &mut core.vcpus[v];
        let preempted = (off_ns - self.cpus[v].off_mark_ns).min(ns);
        self.cpus[v].off_mark_ns = off_ns;
        vcpu.pauses.spun_ns += ns;
        vcpu.ledger.user_spin_ns += if self.cpus[v].run.user { ns } else { 0 };
        vcpu.ledger.time_ns[Class::SpinHolderPreempted as usize] += preempted;
        vcpu.ledger.time_ns[Class::SpinHolderRunning as usize] += ns - preempted;
    }

    /// Sets the timer of the pCPU that `v` runs on to the end of what `v` does; `v` has been
    /// accounted for.
    pub fn rearm(&mut self, core: &mut Core, v: VcpuId) {
        if core.vcpus[v].on.state != State::Running {
            return;
        }
        if self.watches_waits {
            self.arm_watches(core, v);
        }
        let (vcpu, cpu) = (&core.vcpus[v], &self.cpus[v]);
        let guest_ns = if vcpu.exit.is_pending() || cpu.answers_next() {
            0
        } else {
            match cpu.run.doing {
                Doing::Work if vcpu.shares_core => core.shared_time_ns(cpu.run.remaining_ns),
                Doing::Work => cpu.run.remaining_ns,
                Doing::HaltBarrier | Doing::HaltBlock | Doing::HaltLock | Doing::SendIpis => 0,
                Doing::SpinLock => self.until_exit_ns(core, v).min(self.until_look_ns(core, v)),
                Doing::SpinAck if cpu.acks_missing > 0 => self.until_exit_ns(core, v),
                Doing::SpinBarrier | Doing::SpinAck => {
                    cpu.run.remaining_ns.min(self.until_exit_ns(core, v))
                }
                Doing::Poll => self.until_exit_ns(core, v),
            }
        };
        let at = core.now_ns.saturating_add(vcpu.ledger.host_ns()).saturating_add(guest_ns);
        let timer = Event::ActionEnd(vcpu.on.pcpu);
        if at == u64::MAX {
            core.events.cancel(timer);
        } else {
            core.events.arm(timer, at);
        }
    }

    /// How long `v` may spin in its guest until the processor stops it.
    #[inline(always)]
    fn until_exit_ns(&self, core: &Core, v: VcpuId) -> u64 {
        let pauses = &core.vcpus[v].pauses;
        match !self.cpus[v].run.user || core.model.ple_at_user {
            true => pauses.window_ns.saturating_sub(pauses.spun_ns),
            false => u64::MAX,
        }
    }

    /// Timers that only count or report waits.
    #[cold]
    fn arm_watches(&mut self, core: &mut Core, v: VcpuId) {
        if self.stall_ns != u64::MAX || self.counts_turns {
            self.arm_stall(core, v);
        }
        if self.report_ns != u64::MAX {
            self.arm_report(core, v);
        }
    }

    /// Starts the clocks of vCPUs that wait for `v`: it has left its pCPU.
    #[inline]
    pub fn note_off(&mut self, core: &Core, v: VcpuId) {
        let vcpu = &self.cpus[v];
        let now = core.now_ns;
        let first_lock = core.vcpus[v].vm.0 * self.locks_per_vm;
        for number in bits(vcpu.owned) {
            self.locks[LockId(first_lock + number)].off.set(true, now);
        }
        let vm = &mut self.vms[core.vcpus[v].vm];
        if !vcpu.run.arrived && vm.scheduler.is_none() {
            let barrier = &mut vm.barrier;
            barrier.missing_off += 1;
            barrier.off.set(true, now);
        }
    }

    /// Stops these clocks: it has a pCPU again.
    #[inline]
    pub fn note_on(&mut self, core: &Core, v: VcpuId) {
        let vcpu = &mut self.cpus[v];
        vcpu.in_mask |= !vcpu.run.doing.halts();
        let now = core.now_ns;
        let first_lock = core.vcpus[v].vm.0 * self.locks_per_vm;
        for number in bits(vcpu.owned) {
            self.locks[LockId(first_lock + number)].off.set(false, now);
        }
        let vm = &mut self.vms[core.vcpus[v].vm];
        if !vcpu.run.arrived && vm.scheduler.is_none() {
            let barrier = &mut vm.barrier;
            barrier.missing_off -= 1;
            barrier.off.set(barrier.missing_off > 0, now);
        }
    }
}

fn bits(mut mask: u128) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < u128::BITS).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_listed_lowest_first() {
        assert_eq!(bits(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
        assert_eq!(bits(0).count(), 0);
    }
}
