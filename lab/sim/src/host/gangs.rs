// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which VM has its turn, and the state of VMs, vCPUs and pCPUs in turns.
//!
//! Modelled on kmod/turns.c and kmod/wanted.c: `policy/demand` decides which VMs get their own
//! turns; `policy/gang` decides which VM owns each pCPU and which vCPU fills a hole. vCPUs that
//! must not run sleep (`turns`).

use crate::core::{Core, State};
use crate::engine::{PcpuId, Table, VcpuId, VmId};
use unspin_policy::demand;
use unspin_policy::gang::{self, CpuSet, Owner};
use unspin_scenario::result::ModuleStats;
use unspin_uapi::Coscheduling;

/// Length of the first turn.
pub const FIRST_TURN_NS: u64 = gang::FIRST_TURN_US * 1000;

/// The module's settings of a VM that affect turns.
#[derive(Debug, Clone, Copy)]
pub struct InTurns {
    /// Waits for turns of other VMs, and gets turns itself.
    pub takes_part: bool,
    pub coscheduling: Coscheduling,
    /// Weight of each of its vCPUs on its pCPU.
    pub vcpu_weight: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct VmTurns {
    set: InTurns,
    /// Its vCPUs run together, unless `unplaced`.
    gang: bool,
    /// There are too few pCPUs to give each vCPU one.
    unplaced: bool,
    turn_ns: u64,
    pub counts: Counts,
}

/// The module's counts of a VM.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub turns: u64,
    pub parks: u64,
    pub parks_late: u64,
    pub parked_ns: u64,
    pub fills: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct VcpuTurns {
    pub vm: VmId,
    /// Since when it has been kept from running; `None` if it is not.
    pub parked_ns: Option<u64>,
    /// The pCPU on which it should run in this turn.
    pub target: Option<PcpuId>,
    /// It waited for a lock when it was parked.
    pub at_lock: bool,
    /// It was parked for too long, and now runs until it loses its pCPU or the turn ends.
    pub late: bool,
    /// After a wake-up: it may run in turns of other VMs until its CPU time reaches this.
    pub back_until_ns: u64,
    /// When it last got its pCPU.
    pub on_ns: u64,
    /// Its CPU time at the last turn's end, which the policy has seen.
    known_cpu_ns: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct PcpuTurns {
    owner: Owner,
    /// The vCPU that runs on it in another VM's turn, or [`VcpuId::NONE`].
    pub filler: VcpuId,
}

/// What turns did, for checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TurnsSeen {
    /// The longest time that a vCPU was kept from running.
    pub longest_park_ns: u64,
    /// Number of turns' ends at which two vCPUs of a pCPU's owner shared that pCPU while another of
    /// the owner's pCPUs was idle.
    pub crowded: u64,
    /// Number of turns in which some VM owned a pCPU.
    pub owned: u64,
}

/// A deliberate fault, which a check must detect.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No VM is ever owed CPU time.
    OwesNothing,
    /// A vCPU that has waited for too long keeps waiting.
    WaitsOn,
    /// A woken vCPU stays on its former pCPU.
    StaysPut,
    /// VMs that waste nothing count as spinning.
    AllSpin,
}

/// What `policy/gang` keeps from turn to turn. VMs that take no part have no vCPUs in it.
struct Kept {
    vms: Vec<gang::Vm>,
    cpus: Vec<gang::Cpu>,
    turn: u32,
}

impl Kept {
    fn host<'h, 'a>(&'h mut self, vcpus: &'h mut [gang::Vcpu<'a>]) -> gang::Host<'h, 'a> {
        gang::Host { vms: &mut self.vms, vcpus, cpus: &mut self.cpus, turn: &mut self.turn }
    }
}

pub struct Turns {
    pub(super) vms: Table<VmId, VmTurns>,
    pub(super) vcpus: Table<VcpuId, VcpuTurns>,
    pub(super) pcpus: Table<PcpuId, PcpuTurns>,
    pub(super) seen: TurnsSeen,
    kept: Kept,
    demand: demand::Host,
    demands: Vec<demand::Vm>,
    everywhere: CpuSet,
    /// Length of the present turn; 0 for the first one, after which no VM is owed anything.
    length_ns: u64,
    started_ns: u64,
    /// Some VM owns a pCPU.
    owned: bool,
    turn_ns: u64,
    #[cfg(test)]
    pub fault: Option<Fault>,
}

impl Turns {
    /// Turns on `pcpus` pCPUs, for VMs that are added later; each turn takes `turn_us`.
    pub fn new(pcpus: u32, turn_us: u32) -> Turns {
        let nobody = PcpuTurns { owner: Owner::Nobody, filler: VcpuId::NONE };
        Turns {
            vms: Table::default(),
            vcpus: Table::default(),
            pcpus: vec![nobody; pcpus as usize].into(),
            seen: TurnsSeen::default(),
            kept: Kept {
                vms: Vec::new(),
                cpus: vec![gang::Cpu::default(); pcpus as usize],
                turn: 0,
            },
            demand: demand::Host::default(),
            demands: Vec::new(),
            everywhere: (0..pcpus as usize).collect(),
            length_ns: 0,
            started_ns: 0,
            owned: false,
            turn_ns: u64::from(turn_us) * 1000,
            #[cfg(test)]
            fault: None,
        }
    }

    pub fn add_vm(&mut self, set: InTurns, vcpus: u32) {
        let first = self.vcpus.len() as u32;
        let takes_part = if set.takes_part { vcpus } else { 0 };
        self.kept.vms.push(gang::Vm::new(first, takes_part));
        let asks = set.takes_part && set.coscheduling == Coscheduling::VCRD_PLE;
        self.demands.push(demand::Vm { asks: u8::from(asks), ..demand::Vm::default() });
        let gang = set.takes_part && set.coscheduling == Coscheduling::CON;
        let vm = self.vms.push(VmTurns {
            set,
            gang,
            unplaced: false,
            turn_ns: 0,
            counts: Counts::default(),
        });
        let new = VcpuTurns { vm, ..VcpuTurns::default() };
        self.vcpus.extend((0..vcpus).map(|_| new));
    }

    #[cfg(test)]
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Whether `v` may run on `p` now.
    pub fn may_run(&self, core: &Core, v: VcpuId, p: PcpuId) -> bool {
        let PcpuTurns { owner, filler } = self.pcpus[p];
        let vcpu = &self.vcpus[v];
        let vm = &self.vms[vcpu.vm];
        let own = if vm.gang && !vm.unplaced { Owner::Vm(vcpu.vm.0 as usize) } else { Owner::Low };
        owner == Owner::Nobody
            || !vm.set.takes_part
            || owner == own
            || filler == v
            || vcpu.late
            || (own == Owner::Low && self.came_back(core, v))
    }

    /// Whether it woke up a moment ago and its VM has had less than its share: then it may run in
    /// turns of other VMs for a while.
    fn came_back(&self, core: &Core, v: VcpuId) -> bool {
        let vcpu = &self.vcpus[v];
        self.kept.vms[vcpu.vm.0 as usize].may_come_back() && core.cpu_ns(v) < vcpu.back_until_ns
    }

    pub(super) fn owner(&self, p: PcpuId) -> Owner {
        self.pcpus[p].owner
    }

    pub fn is_parked(&self, v: VcpuId) -> bool {
        self.vcpus[v].parked_ns.is_some()
    }

    /// State of each vCPU, and the CPU time it got since the last turn ended. The module detects
    /// throttled vCPUs by the holes that they leave.
    fn look(
        &mut self,
        core: &Core,
        throttled: impl Fn(VcpuId) -> bool,
    ) -> Vec<gang::Vcpu<'static>> {
        let mut seen = Vec::with_capacity(self.vcpus.len());
        for (v, vcpu) in core.vcpus.rows() {
            let of = &mut self.vcpus[v];
            let cpu_ns = core.cpu_ns(v);
            let got = cpu_ns - std::mem::replace(&mut of.known_cpu_ns, cpu_ns);
            seen.push(gang::Vcpu {
                got,
                wants: u8::from(vcpu.on.state != State::Halted),
                held_back: u8::from(throttled(v)),
                ..gang::Vcpu::new(vcpu.on.pcpu.0, self.vms[of.vm].set.vcpu_weight)
            });
        }
        seen
    }

    /// Decides which VMs have their vCPUs run together. `wasted` gives the cycles that a VM's PLE
    /// exits took.
    fn judge(&mut self, core: &Core, wasted: impl Fn(VmId) -> u64) {
        for (vm, of) in core.vms.rows() {
            let cpu_ns: u64 = of.first.and_next(of.vcpus).map(|v| core.cpu_ns(v)).sum();
            let demand = &mut self.demands[vm.0 as usize];
            demand.cpu = core.clock.cycles(cpu_ns);
            demand.wasted = wasted(vm);
        }
        #[cfg(test)]
        if self.has(Fault::AllSpin) {
            self.demands.iter_mut().for_each(|demand| demand.wasted = demand.cpu);
        }
        let params = demand::Params::default();
        self.demand.step(&mut self.demands, &params, core.now_ns / 1000);
        for (vm, demand) in self.vms.iter_mut().zip(&self.demands) {
            if demand.asks != 0 {
                vm.gang = demand.high != 0;
            }
        }
    }

    /// Ends a turn and starts the next: decides who owns each pCPU and where each vCPU should run.
    pub(super) fn decide(
        &mut self,
        core: &Core,
        wasted: impl Fn(VmId) -> u64,
        throttled: impl Fn(VcpuId) -> bool,
    ) {
        self.charge(core.now_ns);
        let seen = self.look(core, throttled);
        let turns_before: Vec<u32> = self.kept.vms.iter().map(|vm| vm.last_turn).collect();
        let everywhere = self.everywhere;
        let allowed = |v: VcpuId| (!core.vcpus[v].on.pinned).then_some(&everywhere);
        let seen = core.vcpus.ids().zip(&seen);
        let mut vcpus: Vec<gang::Vcpu> =
            seen.map(|(v, seen)| gang::Vcpu { allowed: allowed(v), ..*seen }).collect();
        for (p, cpu) in core.pcpus.ids().zip(&mut self.kept.cpus) {
            cpu.core = core.sibling(p).map_or(p, |sibling| sibling.min(p)).0;
        }
        self.kept.host(&mut vcpus).account(self.length_ns);
        #[cfg(test)]
        if self.has(Fault::OwesNothing) {
            self.kept.vms.iter_mut().for_each(|vm| vm.owed = 0);
        }
        self.judge(core, wasted);
        for (seen, vm) in self.kept.vms.iter_mut().zip(self.vms.iter()) {
            seen.high = u8::from(vm.gang);
        }
        self.owned = self.kept.host(&mut vcpus).turn_starts();
        self.seen.owned += u64::from(self.owned);
        for (pcpu, seen) in self.pcpus.iter_mut().zip(&self.kept.cpus) {
            pcpu.owner = if self.owned { seen.owner() } else { Owner::Nobody };
        }
        for (vcpu, seen) in self.vcpus.iter_mut().zip(&vcpus) {
            vcpu.target = (seen.target().is_some()).then_some(PcpuId(seen.target));
        }
        for (vm, seen) in self.vms.iter_mut().zip(&self.kept.vms) {
            vm.unplaced = seen.unplaced != 0;
        }
        let now = self.kept.vms.iter().zip(turns_before);
        for (vm, (seen, before)) in self.vms.iter_mut().zip(now) {
            vm.counts.turns += u64::from(seen.last_turn != before);
        }
        self.length_ns = self.turn_ns;
        self.started_ns = core.now_ns;
    }

    /// Charges the turn that ends to its owners, and ends all fillers.
    fn charge(&mut self, now_ns: u64) {
        for (vm, seen) in self.vms.iter_mut().zip(&self.kept.vms) {
            if self.owned && seen.is_high() && seen.last_turn == self.kept.turn {
                vm.turn_ns += now_ns - self.started_ns;
            }
        }
        self.pcpus.iter_mut().for_each(|pcpu| pcpu.filler = VcpuId::NONE);
        self.vcpus.iter_mut().for_each(|vcpu| vcpu.late = false);
    }

    /// When the present turn ends.
    pub(super) fn end_ns(&self) -> u64 {
        self.started_ns + self.length_ns
    }

    /// Chooses a vCPU to fill `p`, whose owner has nothing to run there.
    pub(super) fn fill(&mut self, core: &Core, p: PcpuId) -> Option<VcpuId> {
        let here = |v: &VcpuId| core.vcpus[*v].on.pcpu == p && self.is_parked(*v);
        let candidates: Vec<gang::Filler> = core
            .vcpus
            .ids()
            .filter(here)
            .map(|v| gang::Filler {
                owed: self.kept.vms[self.vcpus[v].vm.0 as usize].owed,
                vcpu: v.0,
                lock: u8::from(self.vcpus[v].at_lock),
                ..gang::Filler::default()
            })
            .collect();
        let v = VcpuId(candidates[gang::fill(&candidates)?].vcpu);
        self.pcpus[p].filler = v;
        self.vms[self.vcpus[v].vm].counts.fills += 1;
        Some(v)
    }

    /// Adds the counters of `vm` to `to`.
    pub fn count(&self, core: &Core, vm: VmId, to: &mut ModuleStats) {
        let VmTurns { gang, turn_ns, counts, .. } = self.vms[vm];
        to.turns = counts.turns;
        to.turn_cycles = core.clock.cycles(turn_ns);
        to.vcrd = u64::from(gang);
        to.parks = counts.parks;
        to.parks_late = counts.parks_late;
        to.parked_cycles = core.clock.cycles(counts.parked_ns);
        to.fills = counts.fills;
    }
}
