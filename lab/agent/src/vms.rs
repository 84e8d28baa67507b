// SPDX-License-Identifier: MIT OR Apache-2.0
//! The VMs of one run: starts them, tells them when to begin and when to read their counts, and
//! stops them.

use std::time::Duration;

use unspin_guest_abi::rng::{stagger_ns, vm_seed};
use unspin_policy::vcrd;
use unspin_scenario::plan::{Arm, Coscheduling, Run, Window};
use unspin_vmm::process::{now_ns, Schedule};
use unspin_vmm::VmConfig;

use crate::cgroup::{Cpus, Limits, VmCgroup};
use crate::child::VmProcess;
use crate::Error;

/// Time from the last preparation to the start of the first VM.
pub(crate) const START_LEAD_NS: u64 = 20_000_000;
/// Time from the moment when every program works to the start of the measuring time, in which
/// watchers are notified.
const WINDOW_LEAD_NS: u64 = 50_000_000;
/// Limit of the time in which a program does its first unit of work once all VMs run.
const WORKS_TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const NS_PER_MS: u64 = 1_000_000;

/// The VMs of a run. The cgroups are dropped after the processes in them.
pub(crate) struct Vms {
    pub(crate) processes: Vec<VmProcess>,
    pub(crate) pids: Vec<u32>,
    _cgroups: Vec<VmCgroup>,
}

/// The threshold of a guest that reports its waits.
fn reports(arm: &Arm) -> Option<u32> {
    let threshold = vcrd::Params::default().threshold_log2_cycles;
    (arm.coscheduling == Coscheduling::Vcrd).then_some(threshold)
}

/// Creates all VMs and moves them to their cgroups. Their vCPUs wait for the start.
pub(crate) fn start_vms(run: &Run, cpus: Cpus) -> Result<Vms, Error> {
    let mut processes = Vec::with_capacity(run.vms.len());
    for (number, vm) in (0..).zip(&run.vms) {
        let arm = run.arm_of(vm);
        let config = VmConfig {
            vcpus: vm.vcpus,
            program: vm.program.clone(),
            lock: vm.lock,
            tau_ns: vm.tau_ns,
            spin_ns: vm.spin_ns,
            lock_clock_mhz: run.lock_clock_mhz,
            stalls: run.stalls,
            report_log2_cycles: reports(&arm),
            cpl: vm.cpl,
            seed: vm_seed(run.seed, number),
            pin: vm.pin.clone(),
            pause_exits: arm.window != Window::Off,
        };
        processes.push(VmProcess::spawn(number, &config)?);
    }
    let mut vms = Vms { pids: Vec::new(), processes, _cgroups: Vec::new() };
    for ((number, vm), process) in (0..).zip(&run.vms).zip(&mut vms.processes) {
        process.wait_ready()?;
        vms.pids.push(process.pid());
        let limits = Limits::of(run, vm, cpus);
        let cgroup = VmCgroup::new(number, run.cgroup, limits, process.pid(), &process.tids)?;
        vms._cgroups.extend(cgroup);
    }
    Ok(vms)
}

/// The start times of the first and the last VM of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Starts {
    pub(crate) first_ns: u64,
    last_ns: u64,
}

impl Starts {
    /// The measuring time, if every program works at `now_ns`. It begins after the warm-up, and
    /// watchers are notified before it.
    fn window(&self, run: &Run, now_ns: u64) -> [u64; 2] {
        let warm_ns = self.last_ns + run.warmup_ms * NS_PER_MS;
        let begin_ns = warm_ns.max(now_ns + WINDOW_LEAD_NS);
        [begin_ns, begin_ns + run.window_ms * NS_PER_MS]
    }
}

/// Tells every VM when to start.
pub(crate) fn start(run: &Run, processes: &mut [VmProcess]) -> Result<Starts, Error> {
    let base = now_ns() + START_LEAD_NS;
    let start = |vm| base + stagger_ns(vm_seed(run.seed, vm), run.stagger_ms);
    let starts: Vec<u64> = (0..run.vm_count()).map(start).collect();
    let first_ns = starts.iter().copied().min().unwrap_or(base);
    let last_ns = starts.iter().copied().max().unwrap_or(base);
    for (process, &start_at_ns) in processes.iter_mut().zip(&starts) {
        process.schedule(Schedule { start_at_ns, all_run_at_ns: last_ns })?;
    }
    Ok(Starts { first_ns, last_ns })
}

/// Waits until every program works, and tells the VMs when to read their counts.
pub(crate) fn window_of_working(
    run: &Run,
    processes: &mut [VmProcess],
    starts: &Starts,
) -> Result<[u64; 2], Error> {
    let all_run = Duration::from_nanos(starts.last_ns.saturating_sub(now_ns()));
    processes.iter_mut().try_for_each(|process| process.works(all_run + WORKS_TIMEOUT))?;
    let window = starts.window(run, now_ns());
    processes.iter_mut().try_for_each(|process| process.sample_at(window))?;
    Ok(window)
}

pub(crate) fn stop_vms(vms: &mut Vms) -> Result<Vec<Option<String>>, Error> {
    for process in &mut vms.processes {
        process.stop()?;
    }
    vms.processes.iter_mut().map(VmProcess::stopped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_window_begins_when_all_are_warm_and_work(
            (warmup_ms, window_ms) in (0..5000u64, 1..5000u64),
            works_after_ns in 0..=WORKS_TIMEOUT.as_nanos() as u64,
        ) {
            let run = Run { warmup_ms, window_ms, ..Run::new(vec![], 2, 4) };
            let starts = Starts { first_ns: 1, last_ns: 20 * NS_PER_MS };
            let works_ns = starts.last_ns + works_after_ns;
            let [begin, end] = starts.window(&run, works_ns);
            prop_assert_eq!(end - begin, window_ms * NS_PER_MS);
            prop_assert!(begin >= works_ns + WINDOW_LEAD_NS);
            let warm = starts.last_ns + warmup_ms * NS_PER_MS;
            prop_assert!(begin == warm || (begin > warm && begin == works_ns + WINDOW_LEAD_NS));
        }
    }
}
