// SPDX-License-Identifier: MIT OR Apache-2.0
//! Credit's state of vCPUs, VMs and pCPUs.

use crate::core::{CreditHost, Host};
use crate::engine::{PcpuId, Rng, Table, VcpuId, VmId};

use unspin_policy::credit::{self, Params, Pcpu, Vcpu};
use unspin_policy::vcrd;
use unspin_scenario::plan::Coscheduling;

/// Xen's rank of one vCPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// Without credit at the last hand-out.
    pub over: bool,
    /// Stopped until it has credit: only on a capped host.
    pub parked: bool,
    /// A tick has found it running since it last had too much credit: it earns.
    pub active: bool,
}

/// Xen's accounts.
#[derive(Debug, Default)]
pub struct Books {
    pub of: Table<VcpuId, Standing>,
    /// VMs whose vCPUs run together, or ran together since the last distribution, until their debt
    /// of then is paid. On a capped host they have one account.
    pub one_account: Table<VmId, bool>,
    /// Sum over all that earned at the last hand-out.
    pub balance: i64,
    /// Credits and vCPUs that a choice sets aside; kept here to avoid allocations.
    pub(super) credits: Vec<i64>,
    pub(super) hidden: Vec<VcpuId>,
}

/// PLE exits of one vCPU that belong to one wait, as far as the host can know.
#[derive(Debug, Clone, Copy, Default)]
pub struct Burst {
    /// CPU time of the vCPU at the last one, ns.
    pub(super) at_cpu_ns: u64,
    pub(super) spun_cycles: u64,
}

/// Credit's state of a pCPU.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    /// The vCPU that ran there last.
    pub(super) last: Option<VcpuId>,
    /// When the slice of the running vCPU ends, ns. By maximal credit: its slot, or that of the vCPU
    /// that ran last.
    pub(super) slice_end_ns: u64,
    /// When the pCPU last chose, ns.
    pub(super) chose_ns: u64,
    /// Up to when the running vCPU has paid, ns; by maximal credit.
    pub(super) paid_ns: u64,
    /// A vCPU has run there.
    pub(super) used: bool,
    /// The running vCPU came first because it was raised or boosted, and has not seen a tick since.
    pub(super) boosted: bool,
}

/// Counts of coscheduling for one VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoschedulingStats {
    /// Waits for a spin-lock that were over-threshold, as the guest measures them.
    pub long_waits: u64,
    /// Those that came within [`NEIGHBOURS`](crate::NEIGHBOURS) passes of the VM's locks after the
    /// last.
    pub long_neighbours: u64,
    /// Adjusting events of VCRD.
    pub events: u64,
    /// For how long the VM's VCRD was set HIGH, us.
    pub high_us: u64,
    /// How often its vCPUs were raised to run beside one of them.
    pub gangs: u64,
}

impl CoschedulingStats {
    /// What happened since an earlier reading.
    pub fn since(&self, first: &CoschedulingStats) -> CoschedulingStats {
        CoschedulingStats {
            long_waits: self.long_waits - first.long_waits,
            long_neighbours: self.long_neighbours - first.long_neighbours,
            events: self.events - first.events,
            high_us: self.high_us - first.high_us,
            gangs: self.gangs - first.gangs,
        }
    }
}

#[derive(Debug)]
pub struct Credit {
    pub params: Params,
    /// Xen's ranks decide, not the most credit (`rules.rs`).
    pub xen: bool,
    pub(super) slice_ns: u64,
    pub(super) boost: bool,
    pub coscheduling: Coscheduling,
    pub vcpus: Table<VcpuId, Vcpu>,
    pub vms: Table<VmId, credit::Vm>,
    pub pcpus: Table<PcpuId, Pcpu>,
    pub books: Books,
    pub(super) places: Table<PcpuId, Place>,
    pub bursts: Table<VcpuId, Burst>,
    pub learner: vcrd::Params,
    pub(super) learned: Table<VmId, vcrd::State>,
    pub(super) draws: Table<VmId, Rng>,
    /// Static coscheduling: the named VMs.
    pub(super) named: Table<VmId, bool>,
    pub stats: Table<VmId, CoschedulingStats>,
    /// Passes of each VM's locks when a wait was last over-threshold.
    pub long_at: Table<VmId, u64>,
    /// Number of the slot in which a PCPU last raised a vCPU; `u64::MAX`: none yet.
    pub(super) raised_in: u64,
    pub(super) slot_ns: u64,
    /// When credits are handed out next, ns.
    pub(super) hand_out_ns: u64,
    /// Largest delay of a slice's timer, ns.
    pub(super) slop_ns: u64,
    pub(super) clock_rng: Rng,
}

impl Credit {
    pub fn new(host: &Host, own: &CreditHost, coscheduling: Coscheduling, seed: u64) -> Credit {
        let pcpus = host.pcpus;
        Credit {
            params: own.params,
            xen: own.xen,
            slice_ns: own.slice_ns,
            boost: own.boost,
            coscheduling,
            vcpus: Table::default(),
            vms: Table::default(),
            pcpus: vec![Pcpu::default(); pcpus as usize].into(),
            books: Books::default(),
            places: vec![Place::default(); pcpus as usize].into(),
            bursts: Table::default(),
            learner: own.vcrd,
            learned: Table::default(),
            draws: Table::default(),
            named: Table::default(),
            stats: Table::default(),
            long_at: Table::default(),
            raised_in: u64::MAX,
            slot_ns: u64::from(own.params.slot_us) * 1000,
            hand_out_ns: 0,
            slop_ns: own.slop_ns,
            clock_rng: Rng::new(seed, u32::MAX - 1),
        }
    }

    /// Adds a VM with this weight. `named`: static coscheduling runs its vCPUs together.
    pub fn add_vm(&mut self, weight: u32, named: bool, seed: u64) {
        self.vms.push(credit::Vm::new(weight));
        self.named.push(named);
        self.books.one_account.push(false);
        self.learned.push(vcrd::State::new(&self.learner));
        self.draws.push(Rng::new(seed, u32::MAX));
        self.stats.push(CoschedulingStats::default());
        self.long_at.push(u64::MAX);
    }

    /// Adds a vCPU to the last VM, asleep and without credit, like an idle vCPU in Xen.
    pub fn add_vcpu(&mut self, pcpu: PcpuId) {
        let mut vcpu = Vcpu::new(self.vms.len() as u32 - 1, pcpu.0);
        vcpu.runnable = 0;
        self.vcpus.push(vcpu);
        self.books.of.push(Standing::default());
        self.bursts.push(Burst::default());
    }
}
