// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of a VM at one moment; two readings' difference is what a run measured.

use crate::engine::VmId;
use crate::machine::Sim;
use crate::run::LockCounts;
use crate::state::{Cause, Class, State, Vcpu, CLASSES};
use unspin_scenario::result::{Attribution, Factors, ModuleStats, VmResult};

/// Counts of one VM at one moment.
pub(crate) struct Reading {
    units: Vec<u64>,
    acquisitions: Vec<u64>,
    time_ns: Vec<[u64; CLASSES]>,
    factors: Factors,
    pub apic_exits: u64,
    wait_hist: Vec<u64>,
    max_wait_cycles: u64,
    module: Option<ModuleStats>,
    locks: LockCounts,
}

impl Reading {
    pub fn of(sim: &Sim, number: VmId) -> Reading {
        let vm = &sim.vms[number];
        let vcpus = sim.vcpus.part(vm.first, vm.vcpus);
        debug_assert!(vcpus.iter().all(|v| v.since_ns == sim.now_ns || v.state == State::Halted));
        let module = &vm.module;
        let mean = |sum: u64| sum / u64::from(vm.vcpus);
        let stats = ModuleStats {
            cpu_cycles: sim.totals(number).cpu_cycles,
            inefficiency_last_ppm: module.last_ppm,
            window_cycles: mean(vcpus.iter().map(|v| u64::from(v.window_cycles)).sum()),
            rounds_total: module.aple.rounds,
            ..module.stats.clone()
        };
        Reading {
            units: vcpus.iter().map(|v| v.units).collect(),
            acquisitions: vcpus.iter().map(|v| v.acquisitions).collect(),
            time_ns: vcpus.iter().map(|v| v.time_ns).collect(),
            factors: factors(vcpus),
            apic_exits: vm.apic_exits,
            wait_hist: vm.wait_hist.clone(),
            max_wait_cycles: vm.max_wait_cycles,
            module: module.counts.then_some(stats),
            locks: LockCounts { halts: vm.lock_halts, stalls: vm.stalls },
        }
    }

    pub fn locks_since(&self, first: &Reading) -> LockCounts {
        LockCounts {
            halts: self.locks.halts - first.locks.halts,
            stalls: self.locks.stalls.since(&first.locks.stalls),
        }
    }

    /// What happened since an earlier reading. Last values stay the later's.
    pub fn since(&self, first: &Reading) -> VmResult {
        let minus = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| a - b).collect();
        let spent: Vec<[u64; CLASSES]> = (self.time_ns.iter().zip(&first.time_ns))
            .map(|(a, b)| std::array::from_fn(|class| a[class] - b[class]))
            .collect();
        let of = |class: Class| spent.iter().map(|t| t[class as usize]).sum();
        let cpu = |t: &[u64; CLASSES]| t[..crate::state::ON_CPU_CLASSES].iter().sum();
        VmResult {
            units: minus(&self.units, &first.units),
            acquisitions: minus(&self.acquisitions, &first.acquisitions),
            cpu_ns: spent.iter().map(cpu).collect(),
            wait_hist: minus(&self.wait_hist, &first.wait_hist),
            stalls: None,
            max_wait_cycles: self.max_wait_cycles,
            module: self.module.as_ref().zip(first.module.as_ref()).map(|(a, b)| stats_since(a, b)),
            error: None,
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
            sched: None,
        }
    }
}

fn factors(vcpus: &[Vcpu]) -> Factors {
    let of = |cause: Cause| vcpus.iter().map(|v| v.cause_ns[cause as usize]).sum();
    Factors {
        idle_switch_ns: of(Cause::Idle),
        spin_switch_ns: of(Cause::Spin),
        ipi_ns: of(Cause::Ipi),
        migration_ns: of(Cause::Migration),
        user_spin_ns: vcpus.iter().map(|v| v.user_spin_ns).sum(),
        far_data_ns: vcpus.iter().map(|v| v.far_ns).sum(),
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

fn stats_since(second: &ModuleStats, first: &ModuleStats) -> ModuleStats {
    second.since(first).expect("nothing here sets a count back")
}
