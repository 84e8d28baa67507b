// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulated machine: events, pCPUs, and which vCPU is on which.
//!
//! Every pCPU has three timers (what its vCPU does ends; its tick; somebody asked it to
//! reschedule), every vCPU one (its block ends). Nothing allocates once the first event is popped,
//! but for epoch samples where they are asked for.

use crate::asym::Asym;
use crate::bandwidth::Bandwidth;
use crate::credit::Credit;
use crate::engine::Clock;
use crate::engine::Rng;
use crate::engine::{Event, Events, LockId, PcpuId, Table, ThreadId, VcpuId, VmId};
use crate::group::Groups;
use crate::host::Host;
use crate::lock::Lock;
use crate::program::Instruction;
use crate::sched::{Entity, RunQueue, Tunables, NONE};
use crate::state::{Cause, Class, Doing, Pcpu, State, Vcpu, Vm, CAUSES};
use crate::thread::Thread;
use unspin_guest_abi as abi;
use unspin_policy::hvs;
use unspin_policy::kvm_stock::Variant;

/// Buckets of the histogram of lock waits, as the guest has them.
pub(crate) const BUCKETS: usize = abi::WAIT_BUCKETS;

pub(crate) struct Sim {
    pub now_ns: u64,
    pub queue: Events,
    pub clock: Clock,
    pub vcpus: Table<VcpuId, Vcpu>,
    /// Of all VMs; a vCPU's own where there is one a vCPU.
    pub threads: Table<ThreadId, Thread>,
    pub entities: Table<VcpuId, Entity>,
    pub pcpus: Table<PcpuId, Pcpu>,
    pub queues: Table<PcpuId, RunQueue>,
    pub vms: Table<VmId, Vm>,
    pub locks: Table<LockId, Lock>,
    pub locks_per_vm: u32,
    pub steps: Vec<Instruction>,
    pub tas_rng: Rng,
    pub tunables: Tunables,
    pub stock: Variant,
    pub host: Host,
    /// Instead of the fair scheduler.
    pub credit: Option<Box<Credit>>,
    /// The VMs' cgroups, where the fair scheduler has them.
    pub groups: Option<Box<Groups>>,
    /// When somebody balances next for the pCPUs that idle, where groups' loads lag.
    pub nohz_balance_ns: u64,
    /// The VMs' caps, where the fair scheduler has them.
    pub bandwidth: Option<Box<Bandwidth>>,
    /// Beside the fair scheduler.
    pub asym: Option<Box<Asym>>,
    /// Ready vCPUs that any pCPU may take.
    pub movable: u32,
    pub trace_epochs: bool,
    pub epoch_from_ns: u64,
    pub events: u64,
    /// The pCPU whose timer interrupt is being handled.
    pub interrupted: PcpuId,
    /// Costs in ns, and cycles of what is drawn in iterations.
    pub iteration_cycles: u64,
    pub pause_loop_cycles: u64,
    pub step_ns: u64,
    pub unit_ns: u64,
    pub lock_ns: u64,
    pub unlock_ns: u64,
    pub handoff_ns: u64,
    pub handoff_per_waiter_ns: u64,
    pub halt_ns: u64,
    pub wake_ns: u64,
    pub timer_wake_ns: u64,
    pub ipi_ns: u64,
    pub kick_ns: u64,
    pub timer_ns: u64,
    pub interrupt_ns: u64,
    pub kernel_interrupt_ns: u64,
    pub switch_ns: u64,
    pub guest_switch_ns: u64,
    pub migration_ns: u64,
    pub tick_cost_ns: u64,
    pub reschedule_ns: u64,
    pub cycles_per_ns_q32: u128,
    pub lock_bucket: usize,
    /// A wait that spins longer than this is counted as a stall; `u64::MAX`: nothing is.
    pub stall_ns: u64,
    /// A wait for a lock that lasts longer than this is reported by the guest; `u64::MAX`: none is.
    pub report_ns: u64,
    /// Waits are watched for either.
    pub watches_waits: bool,
    /// Locks' budgets are this many times their headers', as a quotient.
    pub lock_time: (u64, u64),
}

impl Sim {
    pub fn cycles_fast(&self, ns: u64) -> u64 {
        ((u128::from(ns) * self.cycles_per_ns_q32) >> 32) as u64
    }

    /// A lock's budget as its header has it, in this host's time.
    pub fn lock_budget_ns(&self, ns: u64) -> u64 {
        let (times, by) = self.lock_time;
        if times == by || ns == u64::MAX {
            return ns;
        }
        let scaled = u128::from(ns) * u128::from(times) / u128::from(by);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    fn pcpu_count(&self) -> u32 {
        self.pcpus.len() as u32
    }

    /// Handles events up to `until_ns`, and brings every account up to there.
    pub fn run_until(&mut self, until_ns: u64) {
        self.queue.arm(Event::Stop, until_ns);
        loop {
            let (now_ns, event) = self.queue.pop().expect("the stop event is pending");
            self.now_ns = now_ns;
            if event == Event::Stop {
                break;
            }
            self.events += 1;
            self.handle_event(event);
        }
        for v in self.vcpus.ids() {
            self.account(v);
        }
        self.check();
    }

    #[inline]
    fn handle_event(&mut self, event: Event) {
        match event {
            Event::ActionEnd(p) => self.action_end(p),
            Event::Tick(p) => self.tick(p),
            Event::Reschedule(p) => self.reschedule(p),
            Event::SleepEnd(t) => self.wake_thread(None, t),
            Event::VmStart(vm) => self.start_vm(vm),
            Event::CreditPeriod => self.assign_credits(),
            Event::AsymPeriod => self.end_period(),
            Event::BandwidthPeriod => self.refill(),
            Event::Stall(v) => self.note_stall(v),
            Event::GuestTick(v) => self.guest_tick(v),
            Event::Report(v) => self.report_wait(v),
            Event::Stop => unreachable!("the run ends there"),
        }
    }

    /// Books the time of `v` up to now, and takes it off what `v` has before it.
    pub fn account(&mut self, v: VcpuId) {
        let vcpu = &mut self.vcpus[v];
        let mut left = self.now_ns - vcpu.since_ns;
        if left == 0 {
            return;
        }
        vcpu.since_ns = self.now_ns;
        match vcpu.state {
            State::Halted => vcpu.time_ns[Class::Halted as usize] += left,
            State::Ready => vcpu.time_ns[Class::Waiting as usize] += left,
            // Most often it is in its guest.
            State::Running if vcpu.host_ns() == 0 => {
                vcpu.in_ple_exit = false;
                self.account_guest(v, left);
                return;
            }
            State::Running => {
                let switch = left.min(vcpu.switch_ns);
                vcpu.switch_ns -= switch;
                vcpu.time_ns[Class::Switch as usize] += switch;
                if (vcpu.switch_cause as usize) < CAUSES {
                    vcpu.cause_ns[vcpu.switch_cause as usize] += switch;
                }
                left -= switch;
                let exit = left.min(vcpu.exit_ns);
                if exit > 0 {
                    vcpu.pay_exit(exit);
                    left -= exit;
                }
                vcpu.in_ple_exit &= vcpu.exit_ns > 0;
                if left > 0 {
                    self.account_guest(v, left);
                    return;
                }
            }
        }
        self.mark_off_clock(v);
    }

    /// `v` did not spin up to now: what others missed until here is not what it will wait for.
    pub fn mark_off_clock(&mut self, v: VcpuId) {
        let vcpu = &mut self.vcpus[v];
        vcpu.off_mark_ns = match vcpu.doing {
            Doing::SpinLock => self.locks[vcpu.wait.lock].off.at(self.now_ns),
            Doing::SpinBarrier => self.vms[vcpu.vm].barrier.off.at(self.now_ns),
            _ => return,
        };
    }

    fn account_guest(&mut self, v: VcpuId, ns: u64) {
        let vcpu = &mut self.vcpus[v];
        let off_ns = match vcpu.doing {
            Doing::Work => {
                assert!(ns <= vcpu.remaining_ns, "vCPU {v} worked longer than it had work");
                vcpu.remaining_ns -= ns;
                vcpu.time_ns[Class::Useful as usize] += ns;
                if vcpu.cache_ns > 0 {
                    let far = ns.min(vcpu.cache_ns);
                    vcpu.cache_ns -= far;
                    vcpu.far_ns += far;
                }
                return;
            }
            Doing::SpinLock => {
                vcpu.wait.spun(self.now_ns, ns);
                self.locks[vcpu.wait.lock].off.at(self.now_ns)
            }
            Doing::SpinBarrier => {
                if vcpu.remaining_ns != u64::MAX {
                    assert!(ns <= vcpu.remaining_ns, "vCPU {v} spun longer than it may");
                    vcpu.remaining_ns -= ns;
                }
                self.vms[vcpu.vm].barrier.off.at(self.now_ns)
            }
            Doing::SpinAck => {
                if vcpu.acks_missing == 0 {
                    vcpu.remaining_ns -= ns;
                }
                let (missing, mark_ns) = (vcpu.acks_missing > 0, vcpu.off_mark_ns);
                // All it waits for are off their pCPUs, or none is, unless they answer late.
                let late = self.vms[vcpu.vm].in_turn;
                mark_ns + if missing && (!late || self.awaits_preempted(v)) { ns } else { 0 }
            }
            Doing::Poll => vcpu.off_mark_ns,
            Doing::HaltBarrier | Doing::HaltBlock | Doing::HaltLock => {
                panic!("vCPU {v} did not halt when it should have")
            }
            Doing::SendIpis => panic!("vCPU {v} did not send when it should have"),
        };
        let vcpu = &mut self.vcpus[v];
        let preempted = (off_ns - vcpu.off_mark_ns).min(ns);
        vcpu.off_mark_ns = off_ns;
        vcpu.spun_ns += ns;
        vcpu.user_spin_ns += if vcpu.user { ns } else { 0 };
        vcpu.time_ns[Class::SpinHolderPreempted as usize] += preempted;
        vcpu.time_ns[Class::SpinHolderRunning as usize] += ns - preempted;
    }

    /// Sets the timer of the pCPU that `v` runs on to the end of what `v` does; `v` has been
    /// accounted for.
    pub fn rearm(&mut self, v: VcpuId) {
        let vcpu = &self.vcpus[v];
        if vcpu.state != State::Running {
            return;
        }
        if self.watches_waits {
            self.arm_watches(v);
        }
        let vcpu = &self.vcpus[v];
        let until_exit = || match !vcpu.user || self.host.ple_at_user {
            true => vcpu.window_ns.saturating_sub(vcpu.spun_ns),
            false => u64::MAX,
        };
        let guest_ns = match vcpu.doing {
            _ if vcpu.is_handled() || vcpu.answers_next() => 0,
            Doing::Work => vcpu.remaining_ns,
            Doing::HaltBarrier | Doing::HaltBlock | Doing::HaltLock | Doing::SendIpis => 0,
            Doing::SpinBarrier => vcpu.remaining_ns.min(until_exit()),
            Doing::SpinAck if vcpu.acks_missing == 0 => vcpu.remaining_ns.min(until_exit()),
            Doing::SpinAck | Doing::Poll => until_exit(),
            Doing::SpinLock => until_exit().min(self.until_look_ns(v)),
        };
        let at = self.now_ns.saturating_add(vcpu.host_ns()).saturating_add(guest_ns);
        let timer = Event::ActionEnd(vcpu.pcpu);
        if at == u64::MAX {
            self.queue.cancel(timer);
        } else {
            self.queue.arm(timer, at);
        }
    }

    /// Timers of what only counts or reports waits.
    #[cold]
    fn arm_watches(&mut self, v: VcpuId) {
        if self.stall_ns != u64::MAX {
            self.arm_stall(v);
        }
        if self.report_ns != u64::MAX {
            self.arm_report(v);
        }
    }

    /// What the vCPU on `p` does has ended.
    fn action_end(&mut self, p: PcpuId) {
        let v = self.queues[p].current;
        self.account(v);
        let vcpu = &self.vcpus[v];
        debug_assert!(vcpu.state == State::Running && vcpu.host_ns() == 0);
        if vcpu.is_handled() {
            self.handle(p, v);
            return;
        }
        if vcpu.answers_next() {
            self.answer(v);
            self.rearm(v);
            return;
        }
        match vcpu.doing {
            Doing::Work => self.advance(v, 0),
            Doing::SpinLock => {
                if self.look(v) {
                    return;
                }
                let vcpu = &self.vcpus[v];
                if vcpu.doing == Doing::SpinLock && vcpu.spun_ns >= vcpu.window_ns {
                    self.ple_exit(p, v);
                }
            }
            Doing::SpinBarrier if vcpu.remaining_ns == 0 => self.halt_at_barrier(v),
            Doing::SendIpis => self.ipi_is_sent(v),
            Doing::SpinAck if vcpu.remaining_ns == 0 => {
                self.vcpus[v].taken = false;
                self.advance(v, 0);
            }
            Doing::SpinBarrier | Doing::SpinAck | Doing::Poll => self.ple_exit(p, v),
            Doing::HaltBarrier | Doing::HaltBlock | Doing::HaltLock => {
                if self.polls_before_halt(p, v) {
                    self.rearm(v);
                    return;
                }
                self.sleep(p, v);
                return;
            }
        }
        if self.queues[p].current == v {
            self.rearm(v);
        }
    }

    /// KVM polls for a wake-up of `v`, which halts, while nobody else wants `p`.
    fn polls_before_halt(&mut self, p: PcpuId, v: VcpuId) -> bool {
        let vcpu = &mut self.vcpus[v];
        let begins = !vcpu.halt_polls && self.host.halt_poll_ns > 0;
        vcpu.halt_polls = begins && self.queues[p].waiting.is_empty();
        if vcpu.halt_polls {
            let ns = self.host.halt_poll_ns;
            self.charge(v, ns, Cause::Idle);
        }
        self.vcpus[v].halt_polls
    }

    /// `v` is woken, or its pCPU wanted: KVM polls no longer. `v` has been accounted for.
    pub fn stop_halt_poll(&mut self, v: VcpuId) {
        let vcpu = &mut self.vcpus[v];
        if std::mem::take(&mut vcpu.halt_polls) {
            vcpu.exit_ns = 0;
            vcpu.owed_ns = Default::default();
        }
    }

    /// Handling an exit takes `v` that long.
    pub fn charge(&mut self, v: VcpuId, ns: u64, cause: Cause) {
        let vcpu = &mut self.vcpus[v];
        vcpu.exit_ns += ns;
        if (cause as usize) < CAUSES {
            vcpu.owed_ns[cause as usize] += ns;
        }
    }

    /// The scheduler's times of `p` up to now; whether the slice of who runs is over.
    pub fn bill(&mut self, p: PcpuId) -> bool {
        let ns = self.unbilled_ns(p);
        // Credit has ticks paid, not times.
        if self.credit.is_some() {
            return false;
        }
        let current = self.queues[p].current;
        let over = self.queues[p].ran(&self.tunables, &mut self.entities, ns);
        match &mut self.bandwidth {
            Some(bandwidth) if current != NONE => bandwidth.ran(current, ns) | over,
            _ => over,
        }
    }

    /// Time that `p`'s scheduler has not seen yet, and now has.
    pub fn unbilled_ns(&mut self, p: PcpuId) -> u64 {
        let pcpu = &mut self.pcpus[p];
        self.now_ns - std::mem::replace(&mut pcpu.billed_ns, self.now_ns)
    }

    /// An interrupt takes `v`, running, out of its guest and back; a pause loop begins anew.
    pub fn interrupt(&mut self, v: VcpuId) {
        self.account(v);
        self.charge(v, self.interrupt_ns, Cause::Ipi);
        let vcpu = &mut self.vcpus[v];
        vcpu.spun_ns = 0;
        if !self.host.apicv {
            self.vms[vcpu.vm].apic_exits += 1;
        }
    }

    fn tick(&mut self, p: PcpuId) {
        let v = self.queues[p].current;
        if v == NONE {
            return;
        }
        self.account(v);
        let vcpu = &mut self.vcpus[v];
        vcpu.exit_ns += self.tick_cost_ns;
        vcpu.spun_ns = 0;
        let billed = self.bill(p);
        self.reweigh(v);
        if self.host.group_load_lags {
            self.balance_at_tick(p);
        }
        let over = billed
            | match self.credit {
                Some(_) => self.tick_credit(p),
                None => self.queues[p].tick(&self.tunables, &self.entities),
            };
        if over && self.times_handling() {
            self.vcpus[v].need_resched = true;
        } else if over {
            self.schedule(p);
        }
        self.arm_tick(p);
        if self.queues[p].current == v {
            self.window_update(v, false);
            self.rearm(v);
        }
    }

    /// Linux spreads skewed ticks over half a period (tick_setup_sched_timer()); Xen's timers begin
    /// when each pCPU is brought up, at any time of a period.
    fn tick_offset_ns(&self, p: PcpuId) -> u64 {
        let range_ns = match self.credit {
            Some(_) => self.host.tick_ns,
            None => self.host.tick_ns / 2,
        };
        let skew = u64::from(if self.host.skew_tick { p.0 } else { 0 });
        range_ns * skew / u64::from(self.pcpu_count())
    }

    /// Whether `p` is on its grid now: a tick of its own, not the end of a slice.
    pub(crate) fn ticks_now(&self, p: PcpuId) -> bool {
        let since = self.now_ns.checked_sub(self.tick_offset_ns(p));
        since.is_some_and(|ns| ns % self.host.tick_ns == 0)
    }

    /// Ticks of different pCPUs are each on its own grid, or at the same time (skew_tick).
    fn arm_tick(&mut self, p: PcpuId) {
        let period = self.host.tick_ns;
        let offset = self.tick_offset_ns(p);
        let next = (self.now_ns + period - offset) / period * period + offset;
        self.queue.arm(Event::Tick(p), next.max(self.now_ns + 1));
        if let Some(credit) = &self.credit {
            self.arm_tick_by(p, credit.slice_end_ns(p));
        }
    }

    /// The next tick of `p` comes at `ns` at the latest.
    pub fn arm_tick_by(&mut self, p: PcpuId, ns: u64) {
        let timer = Event::Tick(p);
        if self.queue.time_of(timer).is_some_and(|at| at > ns) {
            self.queue.arm(timer, ns.max(self.now_ns + 1));
        }
    }

    /// Asks `p` to reschedule; an earlier request stands.
    pub fn ask_reschedule(&mut self, p: PcpuId) {
        let current = self.queues[p].current;
        if current != NONE {
            if self.vcpus[current].need_resched {
                return;
            }
            // Its own interrupt asks it; no other is sent.
            if p == self.interrupted {
                self.vcpus[current].need_resched = true;
                self.rearm(current);
                return;
            }
        }
        let timer = Event::Reschedule(p);
        if self.queue.time_of(timer).is_none() {
            self.queue.arm(timer, self.now_ns + self.reschedule_ns);
        }
    }

    fn reschedule(&mut self, p: PcpuId) {
        let v = self.queues[p].current;
        if v != NONE {
            self.account(v);
            if self.vcpus[v].halt_polls {
                self.stop_halt_poll(v);
                self.sleep(p, v);
                return;
            }
            // One that is not in its guest sees the request on its way there.
            let vcpu = &self.vcpus[v];
            let ns = match vcpu.host_ns() == 0 && !vcpu.is_handled() {
                true => self.interrupt_ns,
                false => self.kernel_interrupt_ns,
            };
            self.charge(v, ns, Cause::Other);
            self.vcpus[v].spun_ns = 0;
            self.bill(p);
            if self.times_handling() {
                self.vcpus[v].need_resched = true;
                self.rearm(v);
                return;
            }
        }
        self.schedule(p);
        if v != NONE && self.queues[p].current == v {
            self.rearm(v);
        }
    }

    /// Whether the host's way from an exit to its decision takes time, as measured; else it decides
    /// at once, and the exit is paid for when the vCPU goes on.
    pub(crate) fn times_handling(&self) -> bool {
        self.host.costs.decide_cycles > 0 && self.credit.is_none()
    }

    /// The host time before a decision about `v`, running on `p`, is spent.
    fn handle(&mut self, p: PcpuId, v: VcpuId) {
        let vcpu = &mut self.vcpus[v];
        if vcpu.undecided {
            // need_resched stays: the kernel looks at it on the way to the guest.
            self.decide(p, v);
        } else {
            vcpu.need_resched = false;
            self.schedule(p);
        }
        if self.queues[p].current == v {
            self.rearm(v);
        }
    }

    /// The scheduler's choice for `p`, whose former current one waits again.
    fn choose(&mut self, p: PcpuId) -> VcpuId {
        if let Some(mut credit) = self.credit.take() {
            let v = self.switch_credit(&mut credit, p);
            self.credit = Some(credit);
            if v != NONE {
                self.arm_tick(p);
            }
            return v;
        }
        self.throttle_current(p);
        let v = self.queues[p].switch(&self.tunables, &mut self.entities);
        if v == NONE && self.pull(p) {
            return self.queues[p].switch(&self.tunables, &mut self.entities);
        }
        v
    }

    /// schedule() on `p`, whose times are right and whose vCPU, if any, is accounted for.
    pub fn schedule(&mut self, p: PcpuId) {
        self.bill(p);
        let before = self.queues[p].current;
        if before != NONE {
            self.vcpus[before].need_resched = false;
        }
        let v = self.choose(p);
        if v == before && v != NONE {
            return;
        }
        if before != NONE {
            self.switch_out(before, v != NONE && self.is_picked_on(v, p));
        }
        let pcpu = &mut self.pcpus[p];
        match (pcpu.idle, v == NONE) {
            (false, true) => {
                pcpu.idle = true;
                pcpu.idle_since_ns = self.now_ns;
                self.queue.cancel(Event::ActionEnd(p));
                self.queue.cancel(Event::Tick(p));
                if self.host.group_load_lags {
                    self.balance_when_idle(p);
                }
            }
            (true, false) => {
                pcpu.idle = false;
                let idle_ns = self.now_ns - pcpu.idle_since_ns;
                pcpu.idle_ns += idle_ns;
                let expected_ns = pcpu.has_idled(idle_ns);
                self.arm_tick(p);
                self.charge(v, self.host.idle_exit_ns(expected_ns), Cause::Idle);
            }
            _ => {}
        }
        if v != NONE {
            self.switch_in(p, v);
        }
    }

    /// Whether a directed yield of the module was for `v`, there, and it has not run since.
    fn is_picked_on(&self, v: VcpuId, p: PcpuId) -> bool {
        let vcpu = &self.vcpus[v];
        vcpu.pick_pending && vcpu.pick_pcpu == p
    }

    /// `v` leaves its pCPU though it could run; `displaced`, for one that a directed yield was for.
    pub fn switch_out(&mut self, v: VcpuId, displaced: bool) {
        self.account(v);
        if self.vcpus[v].owes_acks {
            self.account_askers(v);
        }
        if let Some(asym) = &mut self.asym {
            asym.preempted(self.vcpus[v].pcpu, v);
        }
        let vcpu = &mut self.vcpus[v];
        vcpu.state = State::Ready;
        vcpu.undecided = false;
        vcpu.off_cause = if vcpu.in_ple_exit { Cause::Spin } else { Cause::Other };
        self.movable += u32::from(!vcpu.pinned);
        self.note_off(v);
        self.note_wanting(v, true);
        let vcpu = &self.vcpus[v];
        let vm = &mut self.vms[vcpu.vm];
        let slot = &mut vm.slots[vcpu.index as usize];
        let flags = vm.module.select.unwrap_or(hvs::Flags::HVS);
        let mut mark = slot.yielded_mark;
        slot.category =
            hvs::category_on_preempt(vcpu.in_ple_exit, displaced, &mut mark, flags) as u8;
        slot.yielded_mark = mark;
        slot.preempted_at = self.now_ns;
        slot.ready = 1;
        slot.running = 0;
        let user = vcpu.user || vm.user_mode;
        slot.user_mode = u8::from(user);
        let stock = &mut vm.stock[vcpu.index as usize];
        stock.ready = 1;
        stock.preempted = 1;
        stock.in_kernel = u8::from(!user);
    }

    fn switch_in(&mut self, p: PcpuId, v: VcpuId) {
        self.account(v);
        let owes_acks = self.vcpus[v].owes_acks;
        if owes_acks {
            self.account_askers(v);
        }
        self.pcpus[p].switches += 1;
        if let Some(asym) = &mut self.asym {
            asym.runs(p, v, self.now_ns);
        }
        let vcpu = &mut self.vcpus[v];
        vcpu.state = State::Running;
        let halts = matches!(vcpu.doing, Doing::HaltBarrier | Doing::HaltBlock | Doing::HaltLock);
        vcpu.in_mask |= !halts;
        self.movable -= u32::from(!vcpu.pinned);
        let from = std::mem::replace(&mut vcpu.pcpu, p);
        vcpu.switch_ns = self.switch_ns;
        vcpu.switch_cause = vcpu.off_cause;
        vcpu.spun_ns = 0;
        let vm = &mut self.vms[vcpu.vm];
        let slot = &mut vm.slots[vcpu.index as usize];
        slot.category = hvs::Category::NotPreempted as u8;
        slot.ready = 0;
        slot.running = 1;
        // Only whether two are equal counts.
        slot.cpu = p.0 as u16;
        let stock = &mut vm.stock[vcpu.index as usize];
        (stock.ready, stock.preempted, stock.blocking, stock.runnable) = (0, 0, 0, 0);
        let pick_pending = std::mem::take(&mut vcpu.pick_pending);
        if pick_pending && vcpu.pick_switches + 1 == self.pcpus[p].switches {
            vm.module.stats.picks_ran_next += 1;
        }
        self.note_on(v);
        self.note_wanting(v, false);
        if self.domain(from) != self.domain(p) {
            self.charge(v, self.migration_ns, Cause::Migration);
        }
        if owes_acks && !self.vms[self.vcpus[v].vm].in_turn {
            self.answer(v);
        }
        self.end_search(v);
        self.window_reset(v);
        if self.vcpus[v].notice_lock {
            self.notice_lock(v);
        }
        self.rearm(v);
    }

    /// `v` halts: its pCPU is free.
    fn sleep(&mut self, p: PcpuId, v: VcpuId) {
        self.bill(p);
        if self.credit.is_some() {
            self.sleep_credit(p);
        } else {
            self.queues[p].dequeue_current(&self.tunables, &mut self.entities);
        }
        let vcpu = &mut self.vcpus[v];
        vcpu.state = State::Halted;
        vcpu.need_resched = false;
        vcpu.off_cause = Cause::Idle;
        if let Some(groups) = &mut self.groups {
            groups.set_runnable(v, false, self.now_ns);
        }
        let vm = &mut self.vms[vcpu.vm];
        let slot = &mut vm.slots[vcpu.index as usize];
        slot.running = 0;
        slot.preempted_at = self.now_ns;
        vm.stock[vcpu.index as usize].blocking = 1;
        self.note_off(v);
        self.give_back(v);
        self.schedule(p);
    }

    /// `v`, asleep or new, wants to run.
    pub fn wake(&mut self, v: VcpuId) {
        self.account(v);
        let vcpu = &mut self.vcpus[v];
        vcpu.state = State::Ready;
        if let Some(asym) = &mut self.asym {
            asym.woken(v, self.now_ns);
        }
        self.movable += u32::from(!vcpu.pinned);
        self.vms[vcpu.vm].apic_exits += u64::from(!self.host.apicv);
        self.charge(v, self.wake_ns, Cause::Idle);
        self.note_wanting(v, true);
        let vcpu = &self.vcpus[v];
        let vm = &mut self.vms[vcpu.vm];
        let slot = &mut vm.slots[vcpu.index as usize];
        slot.category = hvs::Category::Woken as u8;
        slot.ready = 1;
        slot.user_mode = 0;
        let stock = &mut vm.stock[vcpu.index as usize];
        stock.ready = 1;
        stock.runnable = 1;
        self.enqueue(v, false);
    }

    fn enqueue(&mut self, v: VcpuId, is_new: bool) {
        if self.credit.is_some() {
            self.enqueue_credit(v, is_new);
            return;
        }
        let p = self.pcpu_for(v);
        self.vcpus[v].pcpu = p;
        let over = self.bill(p);
        if let Some(groups) = &mut self.groups {
            groups.set_runnable(v, true, self.now_ns);
            self.entities[v].set_weight(&self.tunables, groups.weight(v, self.now_ns));
        }
        let queue = &mut self.queues[p];
        queue.enqueue(&self.tunables, &mut self.entities, v, is_new);
        if !self.may_queue(p, v) {
            return;
        }
        let current = self.queues[p].current;
        let asked = current != NONE && self.vcpus[current].need_resched || self.is_asked(p);
        let queue = &mut self.queues[p];
        if over || queue.preempts(&self.tunables, &mut self.entities, v) {
            if !asked {
                queue.prefer_woken(&self.tunables, v);
            }
            self.ask_reschedule(p);
        }
    }

    /// The weight of `v`, current and billed, follows its group's load.
    fn reweigh(&mut self, v: VcpuId) {
        let Some(groups) = &mut self.groups else { return };
        groups.refresh(v, self.now_ns);
        let weight = groups.weight(v, self.now_ns);
        let queue = &mut self.queues[self.vcpus[v].pcpu];
        queue.reweigh(&self.tunables, &mut self.entities, v, weight);
    }

    fn start_vm(&mut self, vm: VmId) {
        let (first, count) = (self.vms[vm].first, self.vms[vm].vcpus);
        for v in first.and_next(count) {
            self.account(v);
            self.vcpus[v].state = State::Ready;
            self.movable += u32::from(!self.vcpus[v].pinned);
            self.vms[vm].stock[(v - first) as usize].ready = 1;
            self.note_wanting(v, true);
            self.enqueue(v, true);
        }
        let tick_ns = self.vms[vm].tick_ns;
        for v in first.and_next(count).filter(|_| tick_ns > 0) {
            // Each on its own grid, as skew_tick=1 has it.
            let offset = tick_ns * u64::from(v - first) / u64::from(count);
            self.queue.arm(Event::GuestTick(v), self.now_ns + 1 + offset);
        }
        self.epoch_start(vm);
    }

    /// Where a vCPU that wants to run goes: where it was, unless it may move and an idle pCPU, or
    /// for want of one the shortest queue, is elsewhere.
    fn pcpu_for(&self, v: VcpuId) -> PcpuId {
        let vcpu = &self.vcpus[v];
        if vcpu.pinned || self.queues[vcpu.pcpu].tasks() == 0 {
            return vcpu.pcpu;
        }
        let count = self.pcpu_count();
        let others = (0..count).map(|i| PcpuId((vcpu.pcpu.0 + i) % count));
        others.min_by_key(|&p| self.queues[p].tasks()).unwrap_or(vcpu.pcpu)
    }

    /// `p` has nobody: takes a waiting vCPU from the longest queue. Whether it got one.
    fn pull(&mut self, p: PcpuId) -> bool {
        if self.movable == 0 {
            return false;
        }
        let movable = |q: &RunQueue| q.waiting.iter().copied().find(|&v| !self.vcpus[v].pinned);
        let longest = (self.pcpus.ids())
            .filter(|&from| movable(&self.queues[from]).is_some())
            .max_by_key(|&from| self.queues[from].waiting.len());
        let Some(from) = longest else { return false };
        let Some(v) = movable(&self.queues[from]) else { return false };
        self.bill(from);
        self.queues[from].take(&self.tunables, &mut self.entities, v);
        self.queues[p].give(&self.tunables, &mut self.entities, v);
        self.vcpus[v].pcpu = p;
        true
    }

    /// Clocks of those who wait for `v`: it has left its pCPU.
    fn note_off(&mut self, v: VcpuId) {
        let vcpu = &self.vcpus[v];
        let now = self.now_ns;
        for number in bits(vcpu.owned) {
            self.locks[LockId(vcpu.vm.0 * self.locks_per_vm + number)].off.set(true, now);
        }
        let vm = &mut self.vms[vcpu.vm];
        if !vcpu.arrived && vm.scheduler.is_none() {
            let barrier = &mut vm.barrier;
            barrier.missing_off += 1;
            barrier.off.set(true, now);
        }
    }

    fn note_on(&mut self, v: VcpuId) {
        let vcpu = &self.vcpus[v];
        let now = self.now_ns;
        for number in bits(vcpu.owned) {
            self.locks[LockId(vcpu.vm.0 * self.locks_per_vm + number)].off.set(false, now);
        }
        let vm = &mut self.vms[vcpu.vm];
        if !vcpu.arrived && vm.scheduler.is_none() {
            let barrier = &mut vm.barrier;
            barrier.missing_off -= 1;
            barrier.off.set(barrier.missing_off > 0, now);
        }
    }

    /// What must hold whatever happened: each vCPU has as much time as has passed, each pCPU's busy
    /// time is that of the vCPUs, everybody is in exactly one queue or in none.
    fn check(&self) {
        let now = self.now_ns;
        let mut busy_ns = 0;
        for (v, vcpu) in self.vcpus.rows() {
            let sum: u64 = vcpu.time_ns.iter().sum();
            assert_eq!(sum, now, "the times of vCPU {v} do not add up");
            busy_ns += vcpu.cpu_ns();
            let current = self.queues[vcpu.pcpu].current == v;
            let waits = self.queues.iter().flat_map(|q| &q.waiting).filter(|&&w| w == v);
            let expected = match vcpu.state {
                State::Halted => (false, 0),
                State::Ready => (false, usize::from(!self.is_throttled(v))),
                State::Running => (true, 0),
            };
            assert_eq!((current, waits.count()), expected, "vCPU {v} is not where it should be");
        }
        let mut pcpu_busy_ns = 0;
        for (p, pcpu) in self.pcpus.rows() {
            let idles = self.queues[p].current == NONE;
            assert_eq!(idles, pcpu.idle, "pCPU {p} is idle and is not");
            let idle_ns = pcpu.idle_ns + if idles { now - pcpu.idle_since_ns } else { 0 };
            pcpu_busy_ns += now - idle_ns;
            let waiting = &self.queues[p].waiting;
            let none_may = self.credit.as_ref().is_some_and(|c| c.all_spent(waiting));
            let left_idle = idles && !waiting.is_empty() && !none_may;
            assert!(!left_idle || self.is_asked(p), "pCPU {p} idles though somebody waits");
        }
        assert_eq!(busy_ns, pcpu_busy_ns, "pCPUs were busy for other than their vCPUs");
    }

    fn is_asked(&self, p: PcpuId) -> bool {
        self.queue.time_of(Event::Reschedule(p)).is_some()
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
    use crate::setup::tests::two_vms;
    use std::panic::{catch_unwind, AssertUnwindSafe};

    /// The check must see each of these.
    #[test]
    fn the_check_sees_what_it_is_for() {
        type Fault = fn(&mut Sim);
        let faults: [(&str, Fault); 5] = [
            ("a lost nanosecond", |s| s.vcpus[VcpuId(0)].time_ns[0] -= 1),
            ("a nanosecond in another class", |s| {
                let v = s.vcpus.iter_mut().find(|v| v.state != State::Halted).unwrap();
                v.time_ns[Class::Waiting as usize] += 1;
                v.time_ns[Class::Useful as usize] -= 1;
            }),
            ("a vCPU in two queues", |s| {
                let v = s.queues[PcpuId(0)].current;
                s.queues[PcpuId(1)].waiting.push(v);
            }),
            ("a vCPU in none", |s| {
                s.queues.iter_mut().find(|q| !q.waiting.is_empty()).unwrap().waiting.clear();
            }),
            ("a pCPU that idled twice", |s| s.pcpus[PcpuId(1)].idle_ns += 1),
        ];
        for (what, fault) in faults {
            let mut sim = two_vms().build().unwrap();
            sim.run_until(30_000_000);
            fault(&mut sim);
            let seen = catch_unwind(AssertUnwindSafe(|| sim.check())).is_err();
            assert!(seen, "{what} goes unseen");
        }
    }

    #[test]
    fn skewed_ticks_lie_within_half_a_period() {
        let sim = two_vms().build().unwrap();
        let offsets: Vec<u64> = (0..4).map(|p| sim.tick_offset_ns(PcpuId(p))).collect();
        assert_eq!(offsets, [0, 500_000, 1_000_000, 1_500_000]);
    }

    #[test]
    fn bits_are_listed_lowest_first() {
        assert_eq!(bits(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
        assert_eq!(bits(0).count(), 0);
    }
}
