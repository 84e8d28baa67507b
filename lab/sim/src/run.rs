// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run: warm-up, reading, measuring time, reading.

use crate::core::{Change, Host};
use crate::error::Error;
use crate::host::{CoschedulingStats, TurnsSeen};
use crate::probe::LockCounts;
use crate::setup::Setup;
use unspin_scenario::plan::Run;
use unspin_scenario::result::{RunResult, VmResult};

const NS_PER_MS: u64 = 1_000_000;

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Simulated {
    pub result: RunResult,
    /// Events handled, for the speed of the simulator itself.
    pub events: u64,
    /// Counts of coscheduling for each VM in the measuring time; empty without Credit.
    pub coscheduling: Vec<CoschedulingStats>,
    /// Counts of the module's turns, from the start; empty without turns.
    pub turns: TurnsSeen,
    /// Events at the locks of each VM in the measuring time.
    pub locks: Vec<LockCounts>,
    /// Exits of each VM for accesses to an APIC, in the measuring time.
    pub apic_exits: Vec<u64>,
    /// What the vCPUs of the first VM did in the measuring time, beginning with the states that they
    /// were in; empty unless [`Setup::watched`] is set.
    pub changes: Vec<Change>,
}

/// Whether a run of a plan can be simulated.
///
/// # Errors
/// As [`simulate`].
pub fn check(host: &Host, run: &Run) -> Result<(), Error> {
    Setup::new(host, run).build().map(drop)
}

/// Simulates a run of a plan.
///
/// # Errors
/// Errors that the agent has too: a program that cannot end, pCPUs that the host does not have,
/// weights without an effect.
pub fn simulate(host: &Host, run: &Run) -> Result<Simulated, Error> {
    simulate_setup(&Setup::new(host, run))
}

/// As [`simulate`], with the settings of each VM.
pub fn simulate_setup(setup: &Setup) -> Result<Simulated, Error> {
    let mut sim = setup.build()?;
    let run = &setup.run;
    let last_start = setup.vms.iter().map(|vm| vm.start_ns).max().unwrap_or(0);
    let begin_ns = last_start + run.warmup_ms * NS_PER_MS;
    sim.run_until(begin_ns);
    let first = sim.readings();
    let gangs_first = sim.coscheduling_stats();
    sim.forget_longest_waits();
    if setup.watched {
        sim.watch();
    }
    let window_ns = run.window_ms * NS_PER_MS;
    sim.run_until(begin_ns + window_ns);
    let last = sim.readings();
    let locks = last.iter().zip(&first).map(|(b, a)| b.locks_since(a)).collect();
    let apic_exits = last.iter().zip(&first).map(|(b, a)| b.apic_exits - a.apic_exits).collect();
    let vm: Vec<VmResult> = last.iter().zip(&first).map(|(b, a)| b.since(a)).collect();
    let host_idle_share = Some(host_idle_share(&setup.host, window_ns, &vm));
    let epochs = sim.take_epochs();
    let result =
        RunResult { epochs, host_idle_share, ..RunResult::new(run.clone(), window_ns, vm) };
    let changes = sim.take_changes();
    let gangs = sim.coscheduling_stats();
    let coscheduling = gangs.iter().zip(&gangs_first).map(|(a, b)| a.since(b)).collect();
    let (events, turns) = (sim.events(), sim.turns_seen());
    Ok(Simulated { result, events, coscheduling, turns, locks, apic_exits, changes })
}

/// Share of the host's CPU time that neither vCPUs nor the host's own tasks used.
fn host_idle_share(host: &Host, window_ns: u64, vms: &[VmResult]) -> f64 {
    let used_ns: u64 = vms.iter().flat_map(|vm| &vm.cpu_ns).sum();
    let own_ppm = if host.credit.is_some() { 0 } else { host.housekeeping_ppm };
    let used = used_ns as f64 / (f64::from(host.pcpus) * window_ns as f64);
    (1.0 - used - f64::from(own_ppm) / 1e6).clamp(0.0, 1.0)
}
