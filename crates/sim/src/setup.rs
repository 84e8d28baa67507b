// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run is made of, and the machine built from it.

use crate::asym::Asym;
use crate::blocking::Mutex;
use crate::credit::Credit;
use crate::group::Groups;

use crate::engine::Rng;
use crate::engine::{Event, Events, Layout, PcpuId, Table, ThreadId, VcpuId, VmId, TIMERS_MAX};
use crate::host::Host;
use crate::lock::params::TURNS_PER_US;
use crate::lock::{Budgets, Lock, Protocol, Stalls, LOCKS, LOCKS_WITH_SOCKETS};
use crate::machine::{Sim, BUCKETS};
use crate::sched::{Entity, RunQueue, Tunables, WEIGHT_DEFAULT};
use crate::socket::{sockets, GROUP, GROUPS_MAX};
use crate::state::{Barrier, Doing, Module, Pcpu, Vcpu, Vm};
use crate::thread::{Context, Scheduler, Thread, ThreadState};
use crate::Error;
use std::collections::VecDeque;
use unspin_guest_abi::rng::{splitmix64, vm_seed};
use unspin_policy::kvm_stock::Vcpu as StockVcpu;
use unspin_policy::{aple, hvs};
use unspin_scenario::module::{sets_window, ModuleSettings};
use unspin_scenario::plan::{
    self, Arm, CgroupLayout, Coscheduling, Dist, LockChoice, Op, Run, Step, Window, YieldTo,
};
use unspin_scenario::result::ModuleStats;
use unspin_uapi::Mode;

const NS_PER_MS: u64 = 1_000_000;
/// Most threads of a VM.
const THREADS_MAX: u32 = 1024;
const TICK_MAX_HZ: u32 = 10_000;
/// CONFIG_HZ of Debian's and Ubuntu's kernels.
const TICK_USUAL_HZ: u32 = 250;
/// As the module: exits a vCPU collects before it touches what its siblings share.
const REPORT_BATCH_MAX: u32 = 64;

/// Most vCPUs of a VM: the largest of APSys'15 has 160.
const VCPUS_MAX: u32 = 256;

/// One VM of a machine.
#[derive(Debug, Clone)]
pub struct VmSetup {
    /// Spread over its vCPUs' random numbers.
    pub seed: u64,
    pub start_ns: u64,
    /// pCPU of each vCPU; empty: any.
    pub pin: Vec<u32>,
    /// Share of CPU time, against the other VMs'.
    pub weight: u32,
    /// Shares of each vCPU's own cgroup within the VM's (layout `vcpu`); empty: all alike.
    pub vcpu_shares: Vec<u64>,
    /// Static coscheduling (CON) runs its vCPUs together.
    pub concurrent: bool,
    pub vcpus: u32,
    pub lock: LockChoice,
    /// Privilege level it spins at.
    pub cpl: u8,
    /// Threads of its program; as many as vCPUs: none ever leaves its own.
    pub threads: u32,
    /// Timer ticks a second of its kernel; 0: none, unless threads must share vCPUs.
    pub tick_hz: u32,
    /// What the arm means for it.
    pub arm: Arm,
    pub program: Vec<Step>,
}

/// What Linux takes as cpu.shares.
const SHARES: std::ops::RangeInclusive<u64> = 2..=262_144;

/// A run as the model takes it: as a plan's [`Run`], but VM by VM.
#[derive(Debug, Clone)]
pub struct Setup {
    pub host: Host,
    pub run: Run,
    pub vms: Vec<VmSetup>,
    /// Count waits that spin for longer than this, ns, as stalls.
    pub stall_ns: Option<u64>,
    /// What locks have instead of their headers' budgets.
    pub budgets: Budgets,
}

impl Setup {
    /// The VMs as the agent starts them: seeds, staggered starts, pinning and weights.
    pub fn new(host: &Host, run: &Run) -> Setup {
        let vms = (0..run.vms).map(|vm| {
            let seed = vm_seed(run.seed, vm);
            let each = run.vm(vm);
            VmSetup {
                seed,
                start_ns: splitmix64(seed) % (run.stagger_ms * NS_PER_MS + 1),
                pin: run.pin.get(vm as usize).cloned().unwrap_or_default(),
                weight: run.weights.get(vm as usize).copied().unwrap_or(1),
                vcpu_shares: Vec::new(),
                concurrent: each.spin_intensive,
                vcpus: each.vcpus,
                lock: LockChoice { kind: each.lock, tau_ns: each.tau_ns },
                cpl: each.cpl,
                threads: each.threads.unwrap_or(each.vcpus),
                tick_hz: each.tick_hz,
                arm: run.arm_of(vm),
                program: each.program,
            }
        });
        let host = host.clone().on(&run.arm.platform);
        let vms = vms.collect();
        let budgets = Budgets::default();
        Setup { host, vms, run: run.clone(), stall_ns: None, budgets }
    }

    fn check(&self) -> Result<(), Error> {
        let run = &self.run;
        let wrong = |text: String| Err(Error::Run { id: run.id, text });
        let most = VCPUS_MAX;
        if self.vms.is_empty() {
            return wrong("no VMs".into());
        }
        if !run.each.is_empty() && run.each.len() != run.vms as usize {
            return wrong(format!("says what {} VMs are, of {}", run.each.len(), run.vms));
        }
        if let Some(vm) = self.vms.iter().find(|vm| !(1..=most).contains(&vm.vcpus)) {
            return wrong(format!("{} vCPUs; a VM has 1 to {most}", vm.vcpus));
        }
        if let Some(vm) = self.vms.iter().find(|vm| !(1..=THREADS_MAX).contains(&vm.threads)) {
            return wrong(format!("{} threads; a VM has 1 to {THREADS_MAX}", vm.threads));
        }
        if let Some(vm) = self.vms.iter().find(|vm| vm.tick_hz > TICK_MAX_HZ) {
            return wrong(format!("{} ticks a second; at most {TICK_MAX_HZ}", vm.tick_hz));
        }
        let in_groups = |threads| threads % GROUP == 0 && threads / GROUP <= GROUPS_MAX;
        if let Some(vm) = self.vms.iter().find(|vm| sends_messages(vm) && !in_groups(vm.threads)) {
            let text = format!("{GROUP} to {} threads, in groups of {GROUP}", GROUPS_MAX * GROUP);
            return wrong(format!("{} threads send messages; they are {text}", vm.threads));
        }
        if self.host.physical && self.vms.len() > 1 {
            return wrong("a physical machine without a VMM runs one system, not VMs".into());
        }
        for (pin, vcpus) in self.vms.iter().map(|vm| (&vm.pin, vm.vcpus)) {
            if !pin.is_empty() && pin.len() != vcpus as usize {
                return wrong(format!("pins {} vCPUs of {vcpus}", pin.len()));
            }
            if let Some(p) = pin.iter().find(|p| **p >= self.host.pcpus) {
                return wrong(format!("pins to pCPU {p}; the host has {}", self.host.pcpus));
            }
        }
        if let Some(vm) = self.vms.iter().find(|vm| !(1..=10_000).contains(&vm.weight)) {
            return wrong(format!("weight {}; cpu.weight is 1 to 10000", vm.weight));
        }
        let unequal = self.vms.iter().any(|vm| vm.weight != self.vms[0].weight);
        if self.host.capped && run.cgroup == CgroupLayout::Flat && !run.alone {
            return wrong("caps need cgroups; use the layout `vm` or `vcpu`".into());
        }
        if unequal && run.cgroup == CgroupLayout::Flat && self.host.credit.is_none() {
            return wrong("weights need cgroups; use the layout `vm` or `vcpu`".into());
        }
        for vm in self.vms.iter().filter(|vm| !vm.vcpu_shares.is_empty()) {
            if run.cgroup != CgroupLayout::Vcpu || self.host.credit.is_some() {
                return wrong("shares of vCPUs need the layout `vcpu`".into());
            }
            if vm.vcpu_shares.len() != vm.vcpus as usize
                || !vm.vcpu_shares.iter().all(|s| SHARES.contains(s))
            {
                return wrong(format!("{} shares; one a vCPU, 2 to 262144", vm.vcpu_shares.len()));
            }
        }
        match &self.host.credit {
            Some(credit) => {
                if let Err(error) = credit.params.check() {
                    return wrong(format!("Credit: {error}"));
                }
                if let Err(error) = credit.vcrd.check() {
                    return wrong(format!("VCRD: {error}"));
                }
                if run.arm.yield_to != YieldTo::Stock {
                    return wrong("Credit has no directed yield; use yield_to = \"stock\"".into());
                }
                if run.arm.asym != plan::Asym::default() {
                    return wrong("asymmetric vCPUs need the fair scheduler".into());
                }
            }
            None if run.arm.coscheduling != Coscheduling::None => {
                return wrong("coscheduling needs Credit, not the fair scheduler".into());
            }
            None => {}
        }
        if let Err(error) = self.host.asym.check() {
            return wrong(format!("asymmetric vCPUs: {error}"));
        }
        if run.window_ms == 0 {
            return wrong("window_ms is 0".into());
        }
        let (pcpus, khz, tick_ns) = (self.host.pcpus, self.host.khz, self.host.tick_ns);
        // HVS tells pCPUs apart by 16 bits.
        let pcpus_fit = (1..=1 << 16).contains(&pcpus);
        if !pcpus_fit || !(1_000..=100_000_000).contains(&khz) || tick_ns < 1000 {
            return Err(Error::Host { pcpus, khz, tick_ns });
        }
        if self.timers() > TIMERS_MAX {
            return wrong(format!("needs {} timers; the model has {TIMERS_MAX}", self.timers()));
        }
        Ok(())
    }

    fn vcpus(&self) -> usize {
        self.vms.iter().map(|vm| vm.vcpus as usize).sum()
    }

    fn layout(&self) -> Layout {
        let ticks = self.vms.iter().any(|vm| vm.tick_hz > 0 || vm.threads != vm.vcpus);
        let watched = ticks || self.report_cycles().is_some() || self.stall_ns.is_some();
        let (threads, vms) = (self.threads() as u32, self.vms.len() as u32);
        Layout::new(self.host.pcpus, threads, vms, self.vcpus() as u32, watched)
    }

    fn timers(&self) -> usize {
        self.layout().timers()
    }

    /// How long a guest waits for a lock before it reports it, where it is asked to.
    fn report_cycles(&self) -> Option<u64> {
        let credit = self.host.credit.as_ref()?;
        (self.run.arm.coscheduling == Coscheduling::Vcrd)
            .then(|| 1 << credit.vcrd.threshold_log2_cycles.min(63))
    }

    /// Of every VM: as many as any needs.
    fn locks_per_vm(&self) -> u32 {
        match self.vms.iter().any(sends_messages) {
            true => LOCKS_WITH_SOCKETS,
            false => LOCKS,
        }
    }

    fn threads(&self) -> usize {
        self.vms.iter().map(|vm| vm.threads as usize).sum()
    }

    pub(crate) fn build(&self) -> Result<Sim, Error> {
        self.check()?;
        let run = &self.run;
        let levels = match run.cgroup {
            CgroupLayout::Flat => 0,
            CgroupLayout::Vm => 1,
            CgroupLayout::Vcpu => 2,
        };
        let host = &Host { costs: self.host.costs.in_groups(levels), ..self.host.clone() };
        let clock = crate::engine::Clock::new(host.khz);
        let ns = |cycles: u32| clock.ns(u64::from(cycles));
        let costs = &host.costs;
        // The next cycle is over the threshold.
        let report_ns = self.report_cycles().map_or(u64::MAX, |cycles| clock.ns(cycles) + 1);
        let mut sim = Sim {
            now_ns: 0,
            queue: Events::new(self.layout()),
            clock,
            vcpus: Table::with_capacity(self.vcpus()),
            threads: Table::with_capacity(self.threads()),
            entities: Table::with_capacity(self.vcpus()),
            pcpus: vec![Pcpu::NEW; host.pcpus as usize].into(),
            queues: Table::default(),
            vms: Table::with_capacity(self.vms.len()),
            locks: Table::with_capacity(self.vms.len() * self.locks_per_vm() as usize),
            locks_per_vm: self.locks_per_vm(),
            steps: Vec::new(),
            tas_rng: Rng::new(run.seed, u32::MAX),
            tunables: Tunables::new(host, run.cgroup != CgroupLayout::Flat),
            stock: host.kernel.stock(),
            host: host.clone(),
            credit: host
                .credit
                .as_ref()
                .map(|c| Box::new(Credit::new(host, c, run.arm.coscheduling, run.seed))),
            groups: (run.cgroup != CgroupLayout::Flat && host.credit.is_none())
                .then(|| Box::new(Groups::new(host.group_load_lags))),
            nohz_balance_ns: 0,
            bandwidth: host.capped.then(Box::default),
            asym: (run.arm.asym != plan::Asym::default())
                .then(|| Box::new(Asym::new(host, run.arm.asym))),
            movable: 0,
            trace_epochs: run.trace_epochs,
            epoch_from_ns: self.vms.iter().map(|vm| vm.start_ns).min().unwrap_or(0),
            events: 0,
            interrupted: PcpuId::NONE,
            iteration_cycles: u64::from(costs.iteration_cycles),
            pause_loop_cycles: u64::from(costs.pause_loop_cycles.max(1)),
            step_ns: ns(costs.step_cycles),
            unit_ns: ns(1).max(1),
            lock_ns: ns(costs.lock_cycles).max(1),
            unlock_ns: ns(costs.unlock_cycles),
            handoff_ns: ns(costs.handoff_cycles),
            handoff_per_waiter_ns: ns(costs.handoff_per_waiter_cycles),
            halt_ns: ns(costs.halt_cycles),
            wake_ns: ns(costs.wake_cycles),
            timer_wake_ns: ns(costs.timer_wake_cycles),
            ipi_ns: ns(costs.ipi_cycles),
            kick_ns: ns(costs.kick_cycles),
            timer_ns: ns(costs.timer_cycles),
            interrupt_ns: ns(costs.interrupt_cycles),
            kernel_interrupt_ns: ns(costs.kernel_interrupt_cycles),
            switch_ns: ns(costs.switch_cycles),
            guest_switch_ns: ns(costs.guest_switch_cycles),
            migration_ns: ns(costs.migration_cycles),
            tick_cost_ns: ns(costs.tick_cycles),
            reschedule_ns: ns(costs.reschedule_cycles),
            cycles_per_ns_q32: (u128::from(host.khz) << 32) / 1_000_000,
            stall_ns: self.stall_ns.unwrap_or(u64::MAX),
            report_ns,
            watches_waits: self.stall_ns.is_some() || report_ns != u64::MAX,
            lock_time: match run.lock_clock_mhz {
                _ if self.budgets.by_turns => {
                    (TURNS_PER_US * u64::from(costs.pause_loop_cycles) * 1000, host.khz)
                }
                Some(mhz) => (u64::from(mhz) * 1000, host.khz),
                None => (1, 1),
            },
            lock_bucket: (63 - u64::from(costs.lock_cycles | 1).leading_zeros()) as usize,
        };
        for setup in &self.vms {
            self.add_vm(&mut sim, setup)?;
        }
        let mut pinned: Table<PcpuId, usize> = vec![0; host.pcpus as usize].into();
        for v in sim.vcpus.iter().filter(|v| v.pinned) {
            pinned[v.pcpu] += 1;
        }
        let free = sim.vcpus.iter().filter(|v| !v.pinned).count();
        sim.queues = pinned.iter().map(|n| RunQueue::new(n + free)).collect::<Vec<_>>().into();
        for (vm, setup) in sim.vms.ids().zip(&self.vms) {
            sim.queue.arm(Event::VmStart(vm), setup.start_ns);
        }
        if sim.credit.is_some() {
            sim.queue.arm(Event::CreditPeriod, 0);
        } else if let Some(asym) = &sim.asym {
            sim.queue.arm(Event::AsymPeriod, asym.period_ns());
        }
        if sim.bandwidth.is_some() {
            sim.queue.arm(Event::BandwidthPeriod, 0);
        }
        Ok(sim)
    }

    fn add_vm(&self, sim: &mut Sim, setup: &VmSetup) -> Result<(), Error> {
        let steps = crate::program::compile(&setup.program, setup.cpl)?;
        let program = sim.steps.len() as u32;
        sim.steps.extend_from_slice(&steps);
        let (number, first) = (VmId(sim.vms.len() as u32), VcpuId(sim.vcpus.len() as u32));
        let vcpus = setup.vcpus;
        let sum: u64 = self.vms.iter().map(|vm| u64::from(vm.weight)).sum();
        // Only the ratio counts: their mean has the default weight.
        let weight = u64::from(setup.weight) * self.vms.len() as u64 * WEIGHT_DEFAULT / sum;
        let protocol = Protocol::of(setup.lock.kind, setup.lock.tau_ns, &self.budgets);
        sim.locks.extend(std::iter::repeat_n(Lock::free(protocol), sim.locks_per_vm as usize));
        let module = module(&self.run, &setup.arm, vcpus);
        let window =
            if module.window_on { module.window_cycles } else { self.host.window.base_cycles };
        sim.vms.push(Vm {
            first,
            vcpus,
            program,
            program_end: sim.steps.len() as u32,
            first_thread: ThreadId(sim.threads.len() as u32),
            threads: setup.threads,
            scheduler: None,
            tick_ns: tick_ns(setup),
            mutexes: Vec::new(),
            sockets: Vec::new(),
            acks: Vec::new(),
            in_turn: false,
            apic_exits: 0,
            user_mode: setup.cpl != 0,
            ple: (setup.cpl == 0 || self.host.ple_at_user)
                && setup.arm.window != Window::Off
                && !self.host.ple_off,
            last_boosted: 0,
            stock: vec![StockVcpu::RUNNING; vcpus as usize],
            slots: vec![hvs::Slot::default(); vcpus as usize],
            barrier: Barrier {
                missing_off: vcpus,
                turns: VecDeque::with_capacity(vcpus as usize),
                ..Barrier::default()
            },
            module,
            epochs: Vec::new(),
            wait_hist: vec![0; BUCKETS],
            max_wait_cycles: 0,
            stalls: Stalls::default(),
            lock_halts: 0,
        });
        sim.vms[number].barrier.off.set(true, 0);
        if let Some(credit) = &mut sim.credit {
            credit.add_vm(setup.weight, setup.concurrent, setup.seed);
        }
        if let Some(groups) = &mut sim.groups {
            groups.add_vm(weight.max(1), vcpus);
            for (v, share) in first.and_next(vcpus).zip(&setup.vcpu_shares) {
                groups.set_share(v, *share, 0);
            }
        }
        if let Some(bandwidth) = &mut sim.bandwidth {
            bandwidth.add_vm(&self.host, vcpus, u64::from(setup.weight), sum);
        }
        for index in 0..vcpus {
            let rng = Rng::new(setup.seed, index);
            let pcpu = setup.pin.get(index as usize).map(|p| PcpuId(*p));
            let anywhere = PcpuId((first + index).0 % self.host.pcpus);
            let pinned = pcpu.is_some();
            let mut vcpu = Vcpu::new(number, index, pcpu.unwrap_or(anywhere), pinned, rng);
            vcpu.pc = program;
            if let Some(credit) = &mut sim.credit {
                credit.add_vcpu(vcpu.pcpu);
            }
            sim.vcpus.push(vcpu);
            sim.entities.push(Entity::new(weight.max(1), &sim.tunables));
            sim.set_window(first + index, window);
        }
        if let Some(asym) = &mut sim.asym {
            let pcpus: Vec<PcpuId> = sim.vcpus.part(first, vcpus).iter().map(|v| v.pcpu).collect();
            asym.add_vm(&pcpus, weight.max(1), u64::from(setup.weight), sum);
        }
        add_threads(sim, setup, number);
        Ok(())
    }
}

fn sends_messages(setup: &VmSetup) -> bool {
    setup.program.iter().any(|s| s.op == Op::SocketLock)
}

/// Period of the guest kernel's ticks: threads that share vCPUs cannot do without.
fn tick_ns(setup: &VmSetup) -> u64 {
    match setup.tick_hz {
        0 if setup.threads == setup.vcpus => 0,
        0 => 1_000_000_000 / u64::from(TICK_USUAL_HZ),
        hz => 1_000_000_000 / u64::from(hz),
    }
}

/// The threads of VM `number`, which is the last; its vCPUs are there.
fn add_threads(sim: &mut Sim, setup: &VmSetup, number: VmId) {
    let Vm { first, vcpus, program, first_thread, .. } = sim.vms[number];
    let has = |op: Op| setup.program.iter().any(|s| s.op == op);
    let vm = &mut sim.vms[number];
    if has(Op::Mutex) {
        vm.mutexes = vec![Mutex::free(setup.threads); LOCKS as usize];
    }
    if has(Op::SocketLock) {
        vm.sockets = sockets(setup.threads);
    }
    if has(Op::Shootdown) || has(Op::ShootdownLazy) {
        vm.acks = vec![Vec::with_capacity(vcpus as usize); vcpus as usize];
        let handled = |s: &Step| {
            matches!(s.op, Op::Shootdown | Op::ShootdownLazy)
                && s.dist != Dist::Const { iterations: 0 }
        };
        vm.in_turn = setup.program.iter().any(handled);
    }
    let alone = setup.threads == vcpus;
    if !alone {
        let queue = VecDeque::with_capacity(setup.threads as usize);
        vm.scheduler = Some(Scheduler { ready: vec![queue; vcpus as usize], off: 0 });
        // Kept by note_wanting() from here on.
        vm.barrier.missing_off = 0;
        vm.barrier.off.set(false, 0);
    }
    for index in 0..setup.threads {
        let v = first + index % vcpus;
        let t = first_thread + index;
        let away = Context {
            doing: Doing::Work,
            taken: false,
            arrived: false,
            user: false,
            pc: program,
            remaining_ns: 0,
            cache_ns: 0,
            passes: 0,
            rng: Rng::new(setup.seed, index),
        };
        let state = if index < vcpus { ThreadState::Running } else { ThreadState::Ready };
        sim.threads.push(Thread { vm: number, index, home: v, state, in_block: false, away });
        if index < vcpus {
            sim.vcpus[v].thread = t;
        } else if let Some(scheduler) = &mut sim.vms[number].scheduler {
            scheduler.ready[(v - first) as usize].push_back(t);
        }
    }
    for v in first.and_next(vcpus).skip(setup.threads as usize) {
        // Nothing to do: it halts as soon as it runs.
        sim.vcpus[v].doing = Doing::HaltBlock;
    }
}

/// The module under this arm.
fn module(run: &Run, arm: &Arm, vcpus: u32) -> Module {
    let settings = ModuleSettings::of(run, arm);
    let set = settings.aple;
    let params = aple::Params {
        window_init_cycles: set.window_init_cycles,
        window_min_cycles: set.window_min_cycles,
        window_max_cycles: set.window_max_cycles,
        delta_cycles: set.delta_cycles,
        delta_max_cycles: set.delta_max_cycles,
        epoch_ple_exits: set.epoch_ple_exits,
        epoch_min_us: set.epoch_min_us,
    };
    let aple = aple::State::new(&params);
    Module {
        counts: settings.mode != Mode::OFF,
        ipi_aware: settings.ipi_aware,
        queue_aware: arm.queue_aware,
        window_on: sets_window(arm),
        select: arm.yield_to.variant().map(hvs::Flags::from),
        params,
        window_cycles: aple.window_cycles,
        aple,
        report_batch: (params.epoch_ple_exits / (8 * vcpus)).clamp(1, REPORT_BATCH_MAX),
        epoch_exits: 0,
        epoch_min_until_ns: 0,
        epoch_base: aple::Epoch::default(),
        last_ppm: 0,
        stats: ModuleStats::default(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::host::Kernel;
    use crate::run::simulate_setup;
    use unspin_scenario::plan::ApleParams;
    use unspin_scenario::plan::Dist;

    /// Two VMs of four vCPUs on four pCPUs, a contended ticket lock each.
    pub(crate) fn two_vms() -> Setup {
        let step =
            |op, iterations| Step { op, dist: Dist::Const { iterations }, lock: 0, permille: 1000 };
        let program = vec![
            step(Op::Compute, 1000),
            step(Op::Lock, 0),
            step(Op::Critical, 500),
            step(Op::Unlock, 0),
        ];
        let run = Run {
            profile: "test".into(),
            spin_intensive: true,
            pin: vec![vec![0, 1, 2, 3]; 2],
            arm: Arm { name: "stock".into(), observe: true, ..Arm::default() },
            epoch_ple_exits: Some(50),
            warmup_ms: 20,
            window_ms: 50,
            stagger_ms: 5,
            ..Run::new(program, 2, 4)
        };
        Setup::new(&Host::lab(4, Kernel::V6_12), &run)
    }

    fn refused(change: fn(&mut Setup), why: &str) {
        let mut setup = two_vms();
        change(&mut setup);
        let error = simulate_setup(&setup).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        refused(|s| s.vms.clear(), "no VMs");
        refused(|s| s.vms[1].vcpus = 257, "257 vCPUs; a VM has 1 to 256");
        refused(|s| s.vms[1].pin = vec![0], "pins 1 vCPUs of 4");
        refused(|s| s.vms[1].pin[2] = 4, "pCPU 4; the host has 4");
        refused(|s| s.vms[0].weight = 0, "cpu.weight is 1 to 10000");
        refused(|s| s.vms[0].weight = 2, "weights need cgroups");
        refused(|s| s.vms[0].vcpu_shares = vec![1024; 4], "need the layout `vcpu`");
        let few = |s: &mut Setup| {
            (s.run.cgroup, s.vms[0].vcpu_shares) = (CgroupLayout::Vcpu, vec![1024]);
        };
        refused(few, "1 shares; one a vCPU");
        let none = |s: &mut Setup| {
            let vcpus = s.vms[0].vcpus as usize;
            (s.run.cgroup, s.vms[0].vcpu_shares) = (CgroupLayout::Vcpu, vec![1; vcpus]);
        };
        refused(none, "2 to 262144");
        refused(|s| s.run.window_ms = 0, "window_ms is 0");
        refused(|s| s.host.khz = 0, "a host of 4 pCPUs of 0 kHz");
        refused(|s| s.vms[0].program.truncate(3), "never released");
    }

    /// What selections know of those that lost their pCPU after a while.
    fn preempted(setup: &Setup) -> Vec<(u8, u8)> {
        let mut sim = setup.build().unwrap();
        let mut seen = Vec::new();
        for ms in 1..60 {
            sim.run_until(ms * 1_000_000);
            for vm in sim.vms.iter() {
                let lost = vm.slots.iter().zip(&vm.stock).filter(|(_, stock)| stock.preempted != 0);
                seen.extend(lost.map(|(slot, stock)| (slot.user_mode, stock.in_kernel)));
            }
        }
        seen
    }

    #[test]
    fn selections_know_who_was_in_user_mode() {
        let of_kernel = preempted(&two_vms());
        assert!(of_kernel.len() > 50 && of_kernel.iter().all(|seen| *seen == (0, 1)));
        let mut setup = two_vms();
        setup.vms.iter_mut().for_each(|vm| vm.cpl = 3);
        let of_user = preempted(&setup);
        assert!(of_user.len() > 50 && of_user.iter().all(|seen| *seen == (1, 0)));
        // In the kernel but for the spinning at its barrier.
        let mut setup = two_vms();
        for vm in &mut setup.vms {
            let step =
                |op, iterations| Step { op, dist: Dist::Const { iterations }, ..vm.program[0] };
            vm.program = vec![step(Op::Compute, 100_000), step(Op::UserBarrier, 0)];
        }
        let both = preempted(&setup);
        assert!(both.contains(&(1, 0)) && both.contains(&(0, 1)));
    }

    #[test]
    fn the_module_is_set_as_the_arm_says() {
        let mut run = two_vms().run;
        let is = |run: &Run| {
            let m = module(run, &run.arm, 4);
            (m.counts, m.window_on, m.select.is_some(), m.window_cycles)
        };
        assert_eq!(is(&run), (true, false, false, 8192));
        run.arm.observe = false;
        assert_eq!(is(&run), (false, false, false, 8192));
        run.arm.window = Window::Fixed { cycles: 2048 };
        assert_eq!(is(&run), (true, true, false, 2048));
        run.arm.window = Window::Aple(ApleParams::default());
        run.arm.yield_to = YieldTo::HVS;
        assert_eq!(is(&run), (true, true, true, 8192));
        assert_eq!(module(&run, &run.arm, 4).params, aple::Params::default());
    }
}
