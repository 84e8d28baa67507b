// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of a VM at one moment. A run measures the difference of two readings.

use crate::core::{Cause, Class, Core, State, Vcpu, CLASSES, ON_CPU_CLASSES};
use crate::engine::VmId;
use crate::guest::{Guest, Stalls};
use crate::kvm::Kvm;
use unspin_scenario::result::{self, Attribution, Factors, ModuleStats, VmResult};

/// Events at the locks of a VM, and the other halts of its vCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LockCounts {
    /// Times a waiter halted.
    pub halts: u64,
    /// Times a vCPU halted because it had nothing to do.
    pub idle_halts: u64,
    /// Counted if [`Setup::stall_ns`](crate::Setup::stall_ns) is set.
    pub stalls: Stalls,
}

/// Counts of one VM at one moment.
pub struct Reading {
    units: Vec<u64>,
    acquisitions: Vec<u64>,
    time_ns: Vec<[u64; CLASSES]>,
    factors: Factors,
    pub apic_exits: u64,
    wait_hist: Vec<u64>,
    max_wait_cycles: u64,
    responses: Option<result::Responses>,
    module: Option<ModuleStats>,
    locks: LockCounts,
    turns: Option<result::Stalls>,
}

impl Reading {
    /// The reading of VM `number`; `count_turns` adds the counts of its turns.
    pub fn of(
        core: &Core,
        guest: &Guest,
        kvm: &Kvm,
        number: VmId,
        count_turns: impl Fn(&mut ModuleStats),
    ) -> Reading {
        let crate::core::Vm { first, vcpus: count, apic_exits } = core.vms[number];
        let vcpus = core.vcpus.part(first, count);
        let cpus = guest.cpus.part(first, count);
        let is_up_to_date =
            |v: &Vcpu| v.ledger.since_ns == core.now_ns || v.on.state == State::Halted;
        debug_assert!(vcpus.iter().all(is_up_to_date));
        let (vm, module) = (&guest.vms[number], &kvm.vms[number].module);
        let windows = kvm.vcpus.part(first, count).iter().map(|v| u64::from(v.window_cycles));
        let mut stats = ModuleStats {
            cpu_cycles: kvm.totals(core, number).cpu_cycles,
            inefficiency_last_ppm: module.last_ppm,
            window_cycles: windows.sum::<u64>() / u64::from(count),
            rounds_total: module.aple.rounds,
            hypercalls_kick: vm.kicks,
            ..module.stats.clone()
        };
        count_turns(&mut stats);
        Reading {
            units: cpus.iter().map(|cpu| cpu.units).collect(),
            acquisitions: cpus.iter().map(|cpu| cpu.acquisitions).collect(),
            time_ns: vcpus.iter().map(|v| v.ledger.time_ns).collect(),
            factors: factors(vcpus),
            apic_exits,
            wait_hist: vm.wait_hist.clone(),
            max_wait_cycles: vm.max_wait_cycles,
            responses: vm.responses.clone(),
            module: module.counts.then_some(stats),
            locks: LockCounts {
                halts: vm.lock_halts,
                idle_halts: vm.idle_halts,
                stalls: vm.stalls,
            },
            turns: vm.turns.clone(),
        }
    }

    pub fn locks_since(&self, first: &Reading) -> LockCounts {
        LockCounts {
            halts: self.locks.halts - first.locks.halts,
            idle_halts: self.locks.idle_halts - first.locks.idle_halts,
            stalls: self.locks.stalls.since(&first.locks.stalls),
        }
    }

    /// The difference since an earlier reading. Last values are those of the later one.
    pub fn since(&self, first: &Reading) -> VmResult {
        let minus =
            |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<u64>>();
        let spent: Vec<[u64; CLASSES]> = (self.time_ns.iter().zip(&first.time_ns))
            .map(|(a, b)| std::array::from_fn(|class| a[class] - b[class]))
            .collect();
        let of = |class: Class| spent.iter().map(|t| t[class as usize]).sum();
        let cpu = |t: &[u64; CLASSES]| t[..ON_CPU_CLASSES].iter().sum();
        VmResult {
            units: minus(&self.units, &first.units),
            acquisitions: minus(&self.acquisitions, &first.acquisitions),
            cpu_ns: spent.iter().map(cpu).collect(),
            wait_hist: minus(&self.wait_hist, &first.wait_hist),
            stalls: (self.turns.as_ref().zip(first.turns.as_ref())).map(|(a, b)| result::Stalls {
                free: minus(&a.free, &b.free),
                held: minus(&a.held, &b.held),
            }),
            max_wait_cycles: self.max_wait_cycles,
            responses: self.responses.as_ref().zip(first.responses.as_ref()).map(|(a, b)| {
                result::Responses {
                    count: a.count - b.count,
                    cycles: a.cycles - b.cycles,
                    hist: minus(&a.hist, &b.hist),
                }
            }),
            module: (self.module.as_ref().zip(first.module.as_ref()))
                .map(|(a, b)| a.since(b).expect("nothing here sets a count back")),
            attribution: Some(Attribution {
                useful_ns: of(Class::Useful),
                spin_holder_running_ns: of(Class::SpinHolderRunning),
                spin_holder_preempted_ns: of(Class::SpinHolderPreempted),
                switch_ns: of(Class::Switch),
                exit_ns: of(Class::Exit),
                halted_ns: of(Class::Halted),
                waiting_ns: of(Class::Waiting),
                factors: Some(minus_factors(&self.factors, &first.factors)),
            }),
            ..VmResult::default()
        }
    }
}

fn factors(vcpus: &[Vcpu]) -> Factors {
    let of = |cause: Cause| vcpus.iter().map(|v| v.ledger.cause_ns(cause)).sum();
    Factors {
        idle_switch_ns: of(Cause::Idle),
        spin_switch_ns: of(Cause::Spin),
        ipi_ns: of(Cause::Ipi),
        migration_ns: of(Cause::Migration),
        user_spin_ns: vcpus.iter().map(|v| v.ledger.user_spin_ns).sum(),
        far_data_ns: vcpus.iter().map(|v| v.ledger.far_ns).sum(),
    }
}

fn minus_factors(a: &Factors, b: &Factors) -> Factors {
    Factors {
        idle_switch_ns: a.idle_switch_ns - b.idle_switch_ns,
        spin_switch_ns: a.spin_switch_ns - b.spin_switch_ns,
        ipi_ns: a.ipi_ns - b.ipi_ns,
        migration_ns: a.migration_ns - b.migration_ns,
        user_spin_ns: a.user_spin_ns - b.user_spin_ns,
        far_data_ns: a.far_data_ns - b.far_data_ns,
    }
}
