// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulated machine, the only part that accesses all others. It dispatches events, handles the
//! guests' requests to their host, and notifies all parts when a vCPU gets or loses its pCPU.
//!
//! Nothing allocates after the first event, except for Credit's choices, at the ends of turns, and
//! for epoch samples and state changes where requested.

mod check;
mod exits;
mod readings;
mod switch;
#[cfg(test)]
mod tests;

use crate::core::{Cause, Core, Effect};
use crate::engine::{Event, PcpuId, ThreadId, VcpuId, VmId};
use crate::guest::{Due, Guest};
use crate::host::Scheduler;
use crate::kvm::Kvm;

pub struct Sim {
    core: Core,
    guest: Guest,
    kvm: Kvm,
    host: Scheduler,
    events: u64,
}

impl Sim {
    /// A machine at time 0, of parts that are set up.
    pub fn new(core: Core, guest: Guest, kvm: Kvm, host: Scheduler) -> Sim {
        Sim { core, guest, kvm, host, events: 0 }
    }

    /// Handles events up to `until_ns`, and brings every account up to there.
    pub fn run_until(&mut self, until_ns: u64) {
        self.core.events.arm(Event::Stop, until_ns);
        loop {
            let (now_ns, event) = self.core.events.pop().expect("the stop event is pending");
            self.core.now_ns = now_ns;
            if event == Event::Stop {
                break;
            }
            self.events += 1;
            if let Event::ActionEnd(p) = event {
                self.action_end(p);
            } else {
                self.handle_rarer(event);
            }
            self.apply_effects();
        }
        for v in self.core.vcpus.ids() {
            self.guest.account(&mut self.core, v);
        }
        self.check();
    }

    /// Handles events other than the end of a vCPU's action, which nearly all are. It is separate so
    /// that the loop above stays small.
    #[inline(never)]
    fn handle_rarer(&mut self, event: Event) {
        match event {
            Event::Tick(p) => self.tick(p),
            Event::Reschedule(p) => self.reschedule(p),
            Event::SleepEnd(t) => self.end_sleep(t),
            Event::VmStart(vm) => self.start_vm(vm),
            Event::CreditPeriod => self.host.assign_credits(&mut self.core),
            Event::AsymPeriod => self.end_asym_period(),
            Event::BandwidthPeriod => self.host.refill(&mut self.core),
            Event::TurnEnd => self.end_turn(),
            Event::ParkEnd => self.host.end_parks(&mut self.core),
            Event::Stall(v) => self.guest.note_stall(&mut self.core, v),
            Event::GuestTick(v) => self.guest.guest_tick(&mut self.core, v),
            Event::Report(v) => self.guest.report_wait(&mut self.core, v),
            Event::HostTask(p) => self.host_task(p),
            Event::ActionEnd(_) | Event::Stop => unreachable!("the loop sees to these"),
        }
    }

    /// Handles the effects of the guests, in order.
    #[inline(always)]
    fn apply_effects(&mut self) {
        if !self.core.effects.is_empty() {
            self.apply_each_effect();
        }
    }

    #[inline(never)]
    fn apply_each_effect(&mut self) {
        let mut next = 0;
        while let Some(&effect) = self.core.effects.get(next) {
            next += 1;
            self.see_to(effect);
        }
        self.core.effects.clear();
    }

    fn see_to(&mut self, effect: Effect) {
        match effect {
            Effect::Wake(v) => self.wake(v),
            Effect::Rearm(v) => self.guest.rearm(&mut self.core, v),
            Effect::Waker { woken, by } => self.host.note_waker(&self.core, woken, by),
            Effect::InterruptPending(v, pending) => {
                self.kvm.set_interrupt_pending(&self.core, v, pending);
            }
            Effect::LongWait { vm, passes } => self.host.long_wait(vm, passes),
            Effect::Reported(vm) => self.host.adjusting_event(&self.core, vm),
            Effect::Parks(v) => self.kvm.parks(&self.core, v),
        }
    }

    /// The action of the vCPU on `p` has ended.
    #[inline(always)]
    fn action_end(&mut self, p: PcpuId) {
        let v = self.host.current(p);
        self.guest.account(&mut self.core, v);
        if self.core.vcpus[v].exit.is_pending() {
            self.handle_exit(p, v);
            return;
        }
        match self.guest.due(&self.core, v) {
            Due::Program => self.run_program(v),
            Due::Look => {
                // The vCPU that has the lock now has been continued.
                if self.guest.look(&mut self.core, v) {
                    return;
                }
                self.apply_effects();
                if self.guest.stopped_spinning(&self.core, v) {
                    self.ple_exit(p, v);
                }
            }
            Due::Other => self.guest.do_due(&mut self.core, v),
            Due::PauseLoop => self.ple_exit(p, v),
            Due::Halt => {
                if !self.host.polls_before_halt(&mut self.core, p, v) {
                    self.sleep(p, v);
                    return;
                }
            }
        }
        self.apply_effects();
        if self.host.current(p) == v {
            self.guest.rearm(&mut self.core, v);
        }
    }

    /// The guest of `v` runs its program on, up to the next thing that takes time.
    fn run_program(&mut self, v: VcpuId) {
        let mut due_ns = Some(0);
        while let Some(ns) = due_ns {
            due_ns = self.guest.advance(&mut self.core, v, ns);
            self.apply_effects();
        }
    }

    fn tick(&mut self, p: PcpuId) {
        let v = self.host.current(p);
        if v == VcpuId::NONE {
            return;
        }
        self.guest.account(&mut self.core, v);
        self.core.charge(v, self.core.prices.tick_ns, Cause::Other);
        self.core.vcpus[v].pauses.spun_ns = 0;
        let over = self.host.tick(&mut self.core, p);
        if over && self.core.times_handling() {
            self.core.vcpus[v].exit.need_resched = true;
        } else if over {
            self.schedule(p);
        }
        self.host.arm_tick(&mut self.core, p);
        if self.host.current(p) == v {
            self.kvm.window_update(&mut self.core, v, false);
            self.guest.rearm(&mut self.core, v);
        }
    }

    /// Thread `t` has slept long enough: the host's timer fires on the pCPU of its vCPU. The vCPU
    /// that runs there pays; if there is none, the woken one does.
    fn end_sleep(&mut self, t: ThreadId) {
        if self.core.times_handling() {
            let home = self.guest.home(t);
            let p = self.core.vcpus[home].on.pcpu;
            self.core.interrupted = p;
            let current = self.host.current(p);
            let is_home = current == VcpuId::NONE || current == home;
            let payer = if is_home { home } else { current };
            self.guest.account(&mut self.core, payer);
            let cause = if is_home { Cause::Idle } else { Cause::Other };
            self.core.charge(payer, self.core.prices.timer_wake_ns, cause);
            if !is_home {
                self.core.vcpus[payer].pauses.spun_ns = 0;
            }
            self.guest.rearm(&mut self.core, payer);
        }
        self.guest.wake_thread(&mut self.core, None, t);
        self.apply_effects();
        self.core.interrupted = PcpuId::NONE;
    }

    fn start_vm(&mut self, vm: VmId) {
        let crate::core::Vm { first, vcpus, .. } = self.core.vms[vm];
        for v in first.and_next(vcpus) {
            self.start(v);
        }
        self.guest.arm_ticks(&mut self.core, vm);
        self.kvm.epoch_start(&self.core, vm);
    }

    /// A turn has ended. What a VM wastes is what the module counts of its PLE exits.
    fn end_turn(&mut self) {
        let kvm = &self.kvm;
        self.host.end_turn(&mut self.core, |vm| {
            let stats = &kvm.vms[vm].module.stats;
            stats.wasteful_spin_cycles + stats.wasteful_switch_cycles
        });
    }

    /// An allocation period of asymmetric vCPUs has ended.
    fn end_asym_period(&mut self) {
        for p in self.core.pcpus.ids() {
            self.host.bill(&mut self.core, p);
        }
        for v in self.core.vcpus.ids() {
            self.guest.account(&mut self.core, v);
        }
        let pcpus = self.host.end_period(&self.core);
        for (v, to) in self.core.vcpus.ids().zip(pcpus) {
            self.migrate(v, to);
        }
        self.host.arm_asym_period(&mut self.core);
    }
}
