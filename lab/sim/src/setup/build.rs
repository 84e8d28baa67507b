// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the machine from a set-up.

use super::arm::module;
use super::{sends_messages, tick_ns, Setup, VmSetup};
use crate::core::{Core, Host, Pcpu, Prices, Vcpu, Vm};
use crate::engine::{Clock, Event, Events, Layout, PcpuId, Rng, Table, VcpuId, VmId};
use crate::error::Error;
use crate::guest::{self, Cpu, Guest, Protocol, VmSpec};
use crate::guest::{LOCKS, LOCKS_WITH_SOCKETS, TURNS_PER_US};
use crate::host::{
    Asym, Credit, Entity, Groups, Housekeeping, InTurns, Policy, Scheduler, Tunables, Turns,
    WEIGHT_DEFAULT,
};
use crate::kvm::{Kvm, VcpuExits, VmExits};
use crate::machine::Sim;
use unspin_policy::kvm_stock::Vcpu as StockVcpu;
use unspin_policy::{gang, hvs};
use unspin_scenario::plan::{self, CgroupLayout, Dist, Op, Step, Window};
use unspin_uapi::Coscheduling;

/// A vCPU's weight in turns is finer than the scheduler's (kmod/weight.c), so that it can be divided.
const TURN_WEIGHT_UNITS: u64 = 8;

const MILLION: u64 = 1_000_000;

/// The parts of a machine.
struct Parts {
    core: Core,
    guest: Guest,
    kvm: Kvm,
    host: Scheduler,
}

impl Setup {
    fn vcpus(&self) -> usize {
        self.vms.iter().map(|vm| vm.vcpus as usize).sum()
    }

    pub(super) fn layout(&self) -> Layout {
        let ticks = self.vms.iter().any(|vm| vm.tick_hz > 0 || vm.threads != vm.vcpus);
        let watched = ticks || self.report_cycles().is_some() || self.counts_waits();
        let (threads, vms) = (self.threads() as u32, self.vms.len() as u32);
        let vcpus = self.vcpus() as u32;
        Layout::new(self.host.pcpus, threads, vms, vcpus, watched, self.has_housekeeping())
    }

    fn has_housekeeping(&self) -> bool {
        self.host.housekeeping_ppm > 0 && self.host.credit.is_none()
    }

    /// Waits for locks that get long are counted.
    fn counts_waits(&self) -> bool {
        self.stall_ns.is_some() || self.run.stalls
    }

    /// How long a guest waits for a lock before it reports the wait, if it does.
    fn report_cycles(&self) -> Option<u64> {
        let credit = self.host.credit.as_ref()?;
        (self.run.arm.coscheduling == plan::Coscheduling::Vcrd)
            .then(|| 1 << credit.vcrd.threshold_log2_cycles.min(63))
    }

    /// The number of locks of every VM: the largest that any VM needs.
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
        let mut sim = Parts {
            core: self.core(&host),
            guest: self.guest(&host),
            kvm: self.kvm(&host),
            host: self.scheduler(&host),
        };
        for setup in &self.vms {
            self.add_vm(&mut sim, setup)?;
        }
        sim.host.turns = self.turns(&sim.kvm);
        sim.host.make_queues(&sim.core);
        for (vm, setup) in sim.core.vms.ids().zip(&self.vms) {
            sim.core.events.arm(Event::VmStart(vm), setup.start_ns);
        }
        sim.host.arm_periods(&mut sim.core);
        Ok(Sim::new(sim.core, sim.guest, sim.kvm, sim.host))
    }

    /// Includes the costs of the cgroup layout, and the arm's slots.
    fn built_host(&self) -> Host {
        let levels = match self.run.cgroup {
            CgroupLayout::Flat => 0,
            CgroupLayout::Vm => 1,
            CgroupLayout::Vcpu => 2,
            CgroupLayout::Libvirt => 4,
        };
        let host = Host { costs: self.host.costs.in_groups(levels), ..self.host.clone() };
        match self.run.arm.turn_us {
            Some(slot_us) => host.with_slot_us(slot_us),
            None => host,
        }
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
            changes: None,
        }
    }

    fn guest(&self, host: &Host) -> Guest {
        let clock = Clock::new(host.khz);
        let costs = &host.costs;
        // The next cycle is above the threshold.
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
            counts_turns: self.run.stalls,
            watches_waits: self.counts_waits() || report_ns != u64::MAX,
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
            wastes_switched_out: self.wastes_switched_out,
        }
    }

    fn has_quotas(&self) -> bool {
        self.host.capped || self.vms.iter().any(|vm| vm.quota_ppm.is_some())
    }

    fn has_asym(&self) -> bool {
        self.run.arm.asym != plan::Asym::default()
    }

    fn scheduler(&self, host: &Host) -> Scheduler {
        let run = &self.run;
        let in_groups = run.cgroup != CgroupLayout::Flat;
        let credit =
            |own| Policy::Credit(Box::new(Credit::new(host, own, run.arm.coscheduling, run.seed)));
        Scheduler {
            policy: host.credit.as_ref().map_or(Policy::Fair, credit),
            queues: Table::default(),
            movable: 0,
            entities: Table::with_capacity(self.vcpus()),
            tunables: Tunables::new(host, in_groups),
            groups: (in_groups && host.credit.is_none())
                .then(|| Box::new(Groups::new(host.group_load_lags))),
            nohz_balance_ns: 0,
            bandwidth: self.has_quotas().then(Box::default),
            turns: None,
            housekeeping: self
                .has_housekeeping()
                .then(|| Box::new(Housekeeping::new(host.pcpus, host.housekeeping_ppm, run.seed))),
            asym: self.has_asym().then(|| Box::new(Asym::new(host, run.arm.asym))),
        }
    }

    fn add_vm(&self, sim: &mut Parts, setup: &VmSetup) -> Result<(), Error> {
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
            waiting: (vcpus as usize > hvs::SLOTS_MAX).then(|| Box::new(hvs::Waiting::new(vcpus))),
            module,
            epochs: Vec::new(),
        });
        for index in 0..vcpus {
            let pcpu = setup.pin.get(index as usize).map(|p| PcpuId(*p));
            let anywhere = PcpuId((first + index).0 % self.host.pcpus);
            let pinned = pcpu.is_some();
            let v = sim.core.vcpus.push(Vcpu::new(number, index, pcpu.unwrap_or(anywhere), pinned));
            sim.guest.cpus.push(Cpu::new(program, Rng::new(setup.seed, index)));
            sim.kvm.vcpus.push(VcpuExits::default());
            sim.kvm.set_window(&mut sim.core, v, window);
        }
        self.add_to_scheduler(sim, setup, number);
        sim.guest.add_threads(number, first, vcpus, setup.seed);
        Ok(())
    }

    fn protocol(&self, setup: &VmSetup) -> Protocol {
        Protocol::of(setup.lock, &self.budgets)
    }

    /// The module's turns, if it has any.
    fn turns(&self, kvm: &Kvm) -> Option<Box<Turns>> {
        let mut modules = kvm.vms.iter().map(|vm| &vm.module);
        let asking = modules.find(|m| m.acts() && m.coscheduling != Coscheduling::NONE)?;
        if self.host.credit.is_some() {
            return None;
        }
        let mut turns = Turns::new(self.host.pcpus, asking.turn_us);
        for (setup, vm) in self.vms.iter().zip(kvm.vms.iter()) {
            let set = InTurns {
                takes_part: vm.module.acts(),
                coscheduling: vm.module.coscheduling,
                vcpu_weight: self.vcpu_weight_in_turns(setup),
            };
            turns.add_vm(set, setup.vcpus);
        }
        Some(Box::new(turns))
    }

    /// As kmod/weight.c: the weight of the VM's cgroup is divided over its vCPUs.
    fn vcpu_weight_in_turns(&self, setup: &VmSetup) -> u32 {
        let weight = self.weight(setup) * TURN_WEIGHT_UNITS;
        let sharing = match self.run.cgroup == CgroupLayout::Flat {
            true => 1,
            false => u64::from(setup.vcpus),
        };
        (weight / sharing).clamp(1, u64::from(gang::WEIGHT_MAX)) as u32
    }

    /// Only the ratio of VMs' weights matters: their mean is the default weight.
    fn weight(&self, setup: &VmSetup) -> u64 {
        let sum: u64 = self.vms.iter().map(|vm| u64::from(vm.weight)).sum();
        let weight = u64::from(setup.weight) * self.vms.len() as u64 * WEIGHT_DEFAULT / sum;
        weight.max(1)
    }

    fn add_to_scheduler(&self, sim: &mut Parts, setup: &VmSetup, number: VmId) {
        let Vm { first, vcpus, .. } = sim.core.vms[number];
        let sum: u64 = self.vms.iter().map(|vm| u64::from(vm.weight)).sum();
        let weight = self.weight(setup);
        let part = u64::from(setup.weight);
        let pcpus: Vec<PcpuId> =
            sim.core.vcpus.part(first, vcpus).iter().map(|v| v.on.pcpu).collect();
        let host = &mut sim.host;
        match &mut host.policy {
            Policy::Fair => {}
            Policy::Credit(credit) => {
                credit.add_vm(setup.weight, setup.concurrent, setup.seed);
                pcpus.iter().for_each(|p| credit.add_vcpu(*p));
            }
        }
        if let Some(groups) = &mut host.groups {
            groups.add_vm(weight, vcpus);
            for (v, share) in first.and_next(vcpus).zip(&setup.vcpu_shares) {
                groups.set_share(v, *share, 0);
            }
        }
        if let Some(bandwidth) = &mut host.bandwidth {
            let by_weight = self.host.capped.then_some((part, sum));
            let own = setup.quota_ppm.map(|ppm| (u64::from(ppm), MILLION));
            bandwidth.add_vm(&self.host, vcpus, own.or(by_weight));
        }
        for _ in 0..vcpus {
            host.entities.push(Entity::new(weight, &host.tunables));
        }
        if let Some(asym) = &mut host.asym {
            asym.add_vm(&pcpus, weight, [part, sum], setup.shaped);
        }
    }
}

/// The guest's description of its VM.
fn guest_vm(setup: &VmSetup) -> VmSpec {
    let has = |op: Op| setup.program.iter().any(|s| s.op == op);
    let handled = |s: &Step| {
        matches!(s.op, Op::Shootdown | Op::ShootdownLazy) && s.dist != Dist::Const { iterations: 0 }
    };
    VmSpec {
        vcpus: setup.vcpus,
        threads: setup.threads,
        tick_ns: tick_ns(setup),
        has_mutexes: has(Op::Mutex) || has(Op::MutexRead),
        has_sockets: has(Op::SocketLock),
        has_shootdowns: has(Op::Shootdown) || has(Op::ShootdownLazy),
        handles_ipis: setup.program.iter().any(handled),
    }
}
