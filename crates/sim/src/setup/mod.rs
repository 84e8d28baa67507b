// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run is made of, and the machine built from it.

use crate::core::{Core, Host, Pcpu, Prices, Vcpu, Vm};
use crate::engine::{Clock, Event, Events, Layout, PcpuId, Rng, Table, VcpuId, VmId, TIMERS_MAX};
use crate::guest::{self, Budgets, Cpu, Guest, Protocol, VmSpec};
use crate::guest::{GROUP, GROUPS_MAX, LOCKS, LOCKS_WITH_SOCKETS, TURNS_PER_US};
use crate::host::{Asym, Credit, Entity, Groups, Scheduler, Tunables, WEIGHT_DEFAULT};
use crate::kvm::{Kvm, Module, VcpuExits, VmExits};
use crate::machine::Sim;
use crate::Error;
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
        let host = self.built_host();
        let mut sim = Sim {
            core: self.core(&host),
            guest: self.guest(&host),
            kvm: self.kvm(&host),
            host: self.scheduler(&host),
            events: 0,
        };
        for setup in &self.vms {
            self.add_vm(&mut sim, setup)?;
        }
        sim.host.make_queues(&sim.core);
        for (vm, setup) in sim.core.vms.ids().zip(&self.vms) {
            sim.core.events.arm(Event::VmStart(vm), setup.start_ns);
        }
        sim.host.arm_periods(&mut sim.core);
        Ok(sim)
    }

    /// What the layout of cgroups costs included.
    fn built_host(&self) -> Host {
        let levels = match self.run.cgroup {
            CgroupLayout::Flat => 0,
            CgroupLayout::Vm => 1,
            CgroupLayout::Vcpu => 2,
        };
        Host { costs: self.host.costs.in_groups(levels), ..self.host.clone() }
    }

    fn core(&self, host: &Host) -> Core {
        let clock = Clock::new(host.khz);
        Core {
            now_ns: 0,
            events: Events::new(self.layout()),
            clock,
            cycles_per_ns_q32: (u128::from(host.khz) << 32) / 1_000_000,
            prices: Prices::of(&host.costs, &clock),
            model: host.clone(),
            vcpus: Table::with_capacity(self.vcpus()),
            pcpus: vec![Pcpu::NEW; host.pcpus as usize].into(),
            vms: Table::with_capacity(self.vms.len()),
            interrupted: PcpuId::NONE,
            effects: Vec::with_capacity(self.vcpus()),
        }
    }

    fn guest(&self, host: &Host) -> Guest {
        let clock = Clock::new(host.khz);
        let costs = &host.costs;
        // The next cycle is over the threshold.
        let report_ns = self.report_cycles().map_or(u64::MAX, |cycles| clock.ns(cycles) + 1);
        let locks_per_vm = self.locks_per_vm();
        Guest {
            cpus: Table::with_capacity(self.vcpus()),
            threads: Table::with_capacity(self.threads()),
            vms: Table::with_capacity(self.vms.len()),
            locks: Table::with_capacity(self.vms.len() * locks_per_vm as usize),
            locks_per_vm,
            steps: Vec::new(),
            tas_rng: Rng::new(self.run.seed, u32::MAX),
            lock_bucket: (63 - u64::from(costs.lock_cycles | 1).leading_zeros()) as usize,
            lock_time: match self.run.lock_clock_mhz {
                _ if self.budgets.by_turns => {
                    (TURNS_PER_US * u64::from(costs.pause_loop_cycles) * 1000, host.khz)
                }
                Some(mhz) => (u64::from(mhz) * 1000, host.khz),
                None => (1, 1),
            },
            stall_ns: self.stall_ns.unwrap_or(u64::MAX),
            report_ns,
            monitor: host.credit.as_ref().map(|credit| credit.vcrd),
            tells_wakers: self.has_asym(),
        }
    }

    fn kvm(&self, host: &Host) -> Kvm {
        Kvm {
            vcpus: Table::with_capacity(self.vcpus()),
            vms: Table::with_capacity(self.vms.len()),
            stock_variant: host.kernel.stock(),
            trace_epochs: self.run.trace_epochs,
            epoch_from_ns: self.vms.iter().map(|vm| vm.start_ns).min().unwrap_or(0),
            seen: Vec::with_capacity(hvs::SLOTS_MAX),
        }
    }

    fn has_asym(&self) -> bool {
        self.run.arm.asym != plan::Asym::default()
    }

    fn scheduler(&self, host: &Host) -> Scheduler {
        let run = &self.run;
        let in_groups = run.cgroup != CgroupLayout::Flat;
        let credit = |own| Box::new(Credit::new(host, own, run.arm.coscheduling, run.seed));
        Scheduler {
            queues: Table::default(),
            movable: 0,
            entities: Table::with_capacity(self.vcpus()),
            tunables: Tunables::new(host, in_groups),
            credit: host.credit.as_ref().map(credit),
            groups: (in_groups && host.credit.is_none())
                .then(|| Box::new(Groups::new(host.group_load_lags))),
            nohz_balance_ns: 0,
            bandwidth: host.capped.then(Box::default),
            asym: self.has_asym().then(|| Box::new(Asym::new(host, run.arm.asym))),
        }
    }

    fn add_vm(&self, sim: &mut Sim, setup: &VmSetup) -> Result<(), Error> {
        let steps = guest::compile(&setup.program, setup.cpl)?;
        let (vcpus, first) = (setup.vcpus, VcpuId(sim.core.vcpus.len() as u32));
        let number = sim.core.vms.push(Vm { first, vcpus, apic_exits: 0 });
        let program = sim.guest.add_vm(&steps, guest_vm(setup), self.protocol(setup));
        let module = module(&self.run, &setup.arm, vcpus);
        let window =
            if module.window_on { module.window_cycles } else { self.host.window.base_cycles };
        sim.kvm.vms.push(VmExits {
            ple: (setup.cpl == 0 || self.host.ple_at_user)
                && setup.arm.window != Window::Off
                && !self.host.ple_off,
            user_mode: setup.cpl != 0,
            last_boosted: 0,
            stock: vec![StockVcpu::RUNNING; vcpus as usize],
            slots: vec![hvs::Slot::default(); vcpus as usize],
            module,
            epochs: Vec::new(),
        });
        for index in 0..vcpus {
            let pcpu = setup.pin.get(index as usize).map(|p| PcpuId(*p));
            let anywhere = PcpuId((first + index).0 % self.host.pcpus);
            let pinned = pcpu.is_some();
            let v = sim.core.vcpus.push(Vcpu::new(number, index, pcpu.unwrap_or(anywhere), pinned));
            sim.guest.cpus.push(Cpu::new(program, Rng::new(setup.seed, index)));
            sim.kvm.vcpus.push(VcpuExits::NEW);
            sim.kvm.set_window(&mut sim.core, v, window);
        }
        self.add_to_scheduler(sim, setup, number);
        sim.guest.add_threads(number, first, vcpus, setup.seed);
        Ok(())
    }

    fn protocol(&self, setup: &VmSetup) -> Protocol {
        Protocol::of(setup.lock.kind, setup.lock.tau_ns, &self.budgets)
    }

    fn add_to_scheduler(&self, sim: &mut Sim, setup: &VmSetup, number: VmId) {
        let Vm { first, vcpus, .. } = sim.core.vms[number];
        let sum: u64 = self.vms.iter().map(|vm| u64::from(vm.weight)).sum();
        // Only the ratio counts: their mean has the default weight.
        let weight = u64::from(setup.weight) * self.vms.len() as u64 * WEIGHT_DEFAULT / sum;
        let weight = weight.max(1);
        let part = u64::from(setup.weight);
        let pcpus: Vec<PcpuId> =
            sim.core.vcpus.part(first, vcpus).iter().map(|v| v.on.pcpu).collect();
        let host = &mut sim.host;
        if let Some(credit) = &mut host.credit {
            credit.add_vm(setup.weight, setup.concurrent, setup.seed);
            pcpus.iter().for_each(|p| credit.add_vcpu(*p));
        }
        if let Some(groups) = &mut host.groups {
            groups.add_vm(weight, vcpus);
            for (v, share) in first.and_next(vcpus).zip(&setup.vcpu_shares) {
                groups.set_share(v, *share, 0);
            }
        }
        if let Some(bandwidth) = &mut host.bandwidth {
            bandwidth.add_vm(&self.host, vcpus, part, sum);
        }
        for _ in 0..vcpus {
            host.entities.push(Entity::new(weight, &host.tunables));
        }
        if let Some(asym) = &mut host.asym {
            asym.add_vm(&pcpus, weight, part, sum);
        }
    }
}

/// What a guest is told of its VM.
fn guest_vm(setup: &VmSetup) -> VmSpec {
    let has = |op: Op| setup.program.iter().any(|s| s.op == op);
    let handled = |s: &Step| {
        matches!(s.op, Op::Shootdown | Op::ShootdownLazy) && s.dist != Dist::Const { iterations: 0 }
    };
    VmSpec {
        vcpus: setup.vcpus,
        threads: setup.threads,
        tick_ns: tick_ns(setup),
        has_mutexes: has(Op::Mutex),
        has_sockets: has(Op::SocketLock),
        has_shootdowns: has(Op::Shootdown) || has(Op::ShootdownLazy),
        in_turn: setup.program.iter().any(handled),
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
    use crate::core::Kernel;
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
            for vm in sim.kvm.vms.iter() {
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
