// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measured runs from records, and the simulations of these runs.

use super::count::{Job, Times};
use super::row::{Figures, Key, Kind, Pair};
use super::{bands, own};
use crate::exit::Usage;
use crate::machine::sim;
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use unspin_report::Stream;
use unspin_scenario::plan::{Coscheduling, CoschedulingMechanism, Run, Window};
use unspin_scenario::result::{Begin, RunResult};
use unspin_sim::{Host, Kernel};

/// The simulations to run; adds the measured values to `pairs`.
pub(super) fn jobs(
    times: Times,
    kind: Kind,
    streams: &[Stream],
    pairs: &mut BTreeMap<Key, Pair>,
) -> anyhow::Result<Vec<Job>> {
    let mut jobs = Vec::new();
    let mut unseen = BTreeSet::new();
    for stream in streams {
        let host = host(&stream.begin)?;
        // Locks on threads are compared only by seeds.
        let worlds = times.worlds.filter(|_| !is_threads(&stream.begin));
        let own = worlds.and_then(|worlds| own::Own::of(&stream.begin, worlds));
        for r in stream.runs.iter().filter(|r| !r.run.alone) {
            if let Some(why) = not_modelled(&r.run) {
                unseen.insert((r.run.arm.name.clone(), why));
                continue;
            }
            let key = key(kind, &stream.begin, &r.run);
            let pair = pairs.entry(key.clone()).or_default();
            pair.is_baseline = r.run.arm.name == r.run.baseline;
            pair.measured.push(figures(r));
            if pair.measured.len() > 1 {
                continue;
            }
            let run = as_simulated(&stream.begin, &r.run);
            pair.run = Some(run.clone());
            jobs.extend(match (worlds, &own) {
                (_, Some(own)) => own.jobs(&key, &host, &run)?,
                (Some(worlds), None) => bands::jobs(&key, &host, &run, worlds),
                (None, None) => seeds(&key, &host, &run, times.seeds),
            });
        }
    }
    for (arm, why) in unseen {
        say!("note: arm {arm} is left out: {why}");
    }
    Ok(jobs)
}

/// Jobs of a run with `seeds` seeds, from its own seed on.
pub(super) fn seeds(key: &Key, host: &Host, run: &Run, seeds: u32) -> Vec<Job> {
    let job = |world: u32| {
        let run = Run { seed: run.seed + u64::from(world), ..run.clone() };
        Job { key: key.clone(), world, error: None, host: host.clone(), run }
    };
    (0..seeds).map(job).collect()
}

/// `6.12` of `6.12.57+deb13-amd64`.
fn series(begin: &Begin) -> String {
    let release = begin.kernel.split(|c: char| c != '.' && !c.is_ascii_digit()).next();
    release.unwrap_or_default().split('.').take(2).collect::<Vec<_>>().join(".")
}

fn is_threads(begin: &Begin) -> bool {
    begin.machine == "threads"
}

/// Why the simulator does not model its turns; `None` if it does.
fn not_modelled(run: &Run) -> Option<&'static str> {
    match run.arm.coscheduling_mechanism {
        CoschedulingMechanism::Park => (),
        CoschedulingMechanism::SchedExt | CoschedulingMechanism::Scheduler => {
            return Some("the simulator has no sched_ext")
        }
    }
    let by_user = matches!(run.arm.coscheduling, Coscheduling::VcrdUser | Coscheduling::VcrdBoth);
    by_user.then_some("the simulator's guests do not spin in user space")
}

/// The run as machine `sim` simulates it: threads have no hypervisor that could detect spinning.
fn as_simulated(begin: &Begin, run: &Run) -> Run {
    let mut run = run.clone();
    if is_threads(begin) {
        run.arm.window = Window::Off;
    }
    run
}

fn host(begin: &Begin) -> anyhow::Result<Host> {
    if is_threads(begin) {
        let khz = begin.tsc_khz.context("the records have no TSC rate")?;
        // The newest modelled scheduler. KVM's version makes no difference here.
        return Ok(Host::threads(begin.pcpus, khz, Kernel::V6_19));
    }
    let model = match begin.machine.as_str() {
        "emulated" => Host::lab,
        "kvm" => Host::server,
        other => {
            let files = "allowed: results of machines emulated, kvm and threads";
            return Err(Usage(format!("machine {other} does not measure; {files}")).into());
        }
    };
    let kernel = sim::kernel(&series(begin))?;
    let slice = ["base_slice_ns", "min_granularity_ns"];
    let slice = slice.iter().find_map(|name| begin.settings.get(*name)?.parse().ok());
    let host = model(begin.pcpus, kernel);
    let khz = begin.tsc_khz.unwrap_or(host.khz);
    Ok(Host { slice_ns: slice, khz, ..host })
}

fn key(kind: Kind, begin: &Begin, run: &Run) -> Key {
    Key {
        kind,
        scenario: begin.scenario.clone(),
        threads: is_threads(begin),
        kernel: series(begin),
        cgroup: run.cgroup as u8,
        profile: run.profile.clone(),
        vms: run.vm_count(),
        vcpus: run.first().vcpus,
        lock: run.lock_group.clone(),
        arm: run.arm.name.clone(),
    }
}

/// The figures of a run.
pub(super) fn figures(r: &RunResult) -> Figures {
    let units: u64 = r.vm.iter().flat_map(|v| &v.units).sum();
    let modules: Option<Vec<_>> = r.vm.iter().map(|v| v.module.as_ref()).collect();
    let inefficiency = modules.map(|all| {
        let sum = |f: fn(&unspin_scenario::result::ModuleStats) -> u64| -> u64 {
            all.iter().map(|m| f(m)).sum()
        };
        let wasted = sum(|m| m.wasteful_spin_cycles) + sum(|m| m.wasteful_switch_cycles);
        wasted as f64 / sum(|m| m.cpu_cycles).max(1) as f64
    });
    Figures { units_per_s: units as f64 * 1e9 / r.window_ns as f64, inefficiency }
}
