// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run: starts VMs, reads them at both ends of the measuring time, and stops them. Linux guests
//! keep running.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use unspin_diagnosis::spinners::{is_user, Samples, USER};
use unspin_scenario::plan::Run;
use unspin_scenario::result::{RunResult, SpinPlace, Spinners, VmResult};
use unspin_vmm::process::now_ns;
use unspin_vmm::{vm_result, Realtime};

use crate::bench::Bench;
use crate::check::check;
use crate::child::{readable_until, VmProcess};
use crate::ends::{Counted, End};
use crate::module;
use crate::vms::{start, start_vms, stop_vms, window_of_working, NS_PER_MS, START_LEAD_NS};
use crate::watchers::Watchers;
use crate::Error;

/// The agent notes if readings of the VMs are further apart than this fraction of the measuring
/// time.
const SKEW_NOTED: u64 = 200;
/// How long it samples where guests spin, and the number of places of their kernels that a record has
/// of each kind.
const SPINNERS_TIME: Duration = Duration::from_millis(60);
const SPIN_PLACES: usize = 1024;

/// Makes a run; `later` are those after it.
pub(crate) fn measure(bench: &mut Bench, run: &Run, later: &[Run]) -> Result<RunResult, Error> {
    check(run)?;
    if bench.module.is_none() && module::needed(run) {
        return Err(Error::NoModule { arm: run.arm.name.clone() });
    }
    if let Some(module) = &bench.module {
        module.check_alone(&bench.guests.pids())?;
    }
    bench.watcher.have(run)?;
    match run.first().linux {
        Some(_) => {
            let result = measure_linux(bench, run, later);
            // A guest that failed, or does not follow its commands, is not reused.
            if !matches!(result, Ok(_) | Err(Error::Interrupted)) {
                bench.guests.end();
            }
            result
        }
        None => {
            bench.guests.end();
            measure_bench(bench, run)
        }
    }
}

fn measure_bench(bench: &mut Bench, run: &Run) -> Result<RunResult, Error> {
    // Write settings first, because VMs inherit them when they start.
    if let Some(module) = &bench.module {
        module.set_defaults(run)?;
    }
    let mut vms = start_vms(run, bench.cpus)?;
    if let Some(module) = &bench.module {
        module.set_others(run, &vms.pids)?;
    }
    let tids = vms.processes.iter().map(|process| process.tids.clone());
    let each: Vec<_> = vms.pids.iter().copied().zip(tids).collect();
    // Loading a scheduler takes long, so it happens before the VMs get their start time.
    let watchers = Watchers::start(bench, run, &each)?;
    let starts = start(run, &mut vms.processes)?;
    let (first, second) = {
        let _realtime = Realtime::enter();
        let [begin_ns, end_ns] = window_of_working(run, &mut vms.processes, &starts)?;
        watchers.measure_in(bench, run, &each, [begin_ns, end_ns])?;
        let fds: Vec<i32> = vms.processes.iter().map(VmProcess::fd).collect();
        // Output before that time means a failure, which is reported when the samples are read.
        readable_until(&fds, begin_ns)?;
        let first = End::read(bench.module.as_ref(), run, &vms.pids)?;
        readable_until(&fds, end_ns)?;
        (first, End::read(bench.module.as_ref(), run, &vms.pids)?)
    };
    let mut samples = Vec::with_capacity(vms.processes.len());
    for process in &mut vms.processes {
        samples.push(process.samples()?);
    }
    let watched = watchers.end(bench, run)?;
    let errors = stop_vms(&mut vms)?;
    let at = samples.iter().map(|ends| [ends[0].at_ns, ends[1].at_ns]);
    note_skew(bench, &at.collect::<Vec<_>>());

    let counted = second.counted_since(&first, run)?;
    let window_ns: u64 = samples.iter().map(|[a, b]| b.at_ns - a.at_ns).sum();
    let vms_results = samples.iter().zip(counted).zip(errors);
    let vm = vms_results.map(|((sample, counted), error)| VmResult {
        module: counted.module,
        turns: counted.turns,
        error,
        ..vm_result(&sample[0].vcpus, &sample[1].vcpus)
    });
    let host_idle_share = second.idle_share_since(&first);
    let result = watched.result(run, vm, &vms.pids, starts.first_ns);
    Ok(RunResult { window_ns: window_ns / samples.len() as u64, host_idle_share, ..result })
}

/// [`measure`] for Linux guests, which run before and after it: only what the arm changes is
/// changed.
fn measure_linux(bench: &mut Bench, run: &Run, later: &[Run]) -> Result<RunResult, Error> {
    bench.guests.have(run, later)?;
    bench.guests.place(run, bench.cpus)?;
    if let Some(module) = &bench.module {
        module.check_can(run)?;
        for (vm, pid) in bench.guests.pids().into_iter().enumerate() {
            module.set_vm(pid, &module::settings_of_linux(run, vm))?;
        }
    }
    let any_started = bench.guests.run_programs(run)?;
    let mut pids = bench.guests.pids();
    pids.truncate(run.vms.len());
    let each: Vec<_> = pids.iter().copied().zip(bench.guests.tids_by_vm(run.vms.len())).collect();
    let watchers = Watchers::start(bench, run, &each)?;
    // The beginning of a program differs from the rest. Without settling, only the first arm would
    // include it.
    let settle_ms = if any_started { run.window_ms } else { 0 };
    let begin_ns = now_ns() + START_LEAD_NS + (run.warmup_ms + settle_ms) * NS_PER_MS;
    let end_ns = begin_ns + run.window_ms * NS_PER_MS;
    watchers.measure_in(bench, run, &each, [begin_ns, end_ns])?;
    let (first, second) = {
        let _realtime = Realtime::enter();
        readable_until(&[], begin_ns)?;
        let first =
            (bench.guests.samples(run.vms.len())?, End::read(bench.module.as_ref(), run, &pids)?);
        readable_until(&[], end_ns)?;
        (
            first,
            (bench.guests.samples(run.vms.len())?, End::read(bench.module.as_ref(), run, &pids)?),
        )
    };
    let watched = watchers.end(bench, run)?;
    let counted = second.1.counted_since(&first.1, run)?;
    let host_idle_share = second.1.idle_share_since(&first.1);
    let (first, second) = (first.0, second.0);
    let at: Vec<[u64; 2]> =
        first.iter().zip(&second).map(|(a, b)| [a.counts.at_ns, b.counts.at_ns]).collect();
    note_skew(bench, &at);
    let window_ns: u64 = at.iter().map(|[a, b]| b - a).sum();
    let spinners = spinners(bench, run);
    let vm = bench.guests.results(&first, &second)?;
    let vm = vm.into_iter().zip(counted);
    let vm = vm.map(|(vm, Counted { module, turns })| VmResult { module, turns, ..vm });
    let result = watched.result(run, vm, &pids, begin_ns);
    let window_ns = window_ns / at.len() as u64;
    Ok(RunResult { window_ns, spinners, host_idle_share, ..result })
}

/// Where the guests of the run's first repeat spin. If that cannot be sampled, the run succeeds
/// without it.
fn spinners(bench: &mut Bench, run: &Run) -> Option<Spinners> {
    if run.repeat > 0 || run.alone {
        return None;
    }
    let (tids, stop) = (bench.guests.tids(run.vms.len()), AtomicBool::new(false));
    match Samples::collect(&tids, SPINNERS_TIME, &stop) {
        Ok(samples) => Some(spin_places(&samples)),
        Err(error) => {
            bench.notes.push(format!("run {}: where guests spin is not known: {error}", run.id));
            None
        }
    }
}

fn spin_places(samples: &Samples) -> Spinners {
    let (pause, others_pause) = places(&samples.pause);
    let (interrupted, others_interrupted) = places(&samples.interrupted);
    Spinners {
        sampled_ms: SPINNERS_TIME.as_millis() as u64,
        pause,
        interrupted,
        others_pause,
        others_interrupted,
        others: samples.dropped,
    }
}

/// The most frequent places, with all of user space as one, and the number of exits at other
/// places.
fn places(counts: &[(u64, u64)]) -> (Vec<SpinPlace>, u64) {
    let (user, kernel): (Vec<_>, Vec<_>) =
        counts.iter().partition(|(address, _)| is_user(*address));
    let of_user = user.iter().map(|(_, count)| count).sum::<u64>();
    let kernels = kernel.iter().take(SPIN_PLACES);
    let place = |&(address, count): &(u64, u64)| SpinPlace { address, count, symbol: None };
    let mut places: Vec<SpinPlace> = kernels.map(place).collect();
    if of_user > 0 {
        places.push(SpinPlace { symbol: Some(USER.into()), ..place(&(0, of_user)) });
    }
    places.sort_by_key(|place| std::cmp::Reverse(place.count));
    (places, kernel.iter().skip(SPIN_PLACES).map(|(_, count)| count).sum())
}

/// `at_ns`: the times at which each VM was read, at both ends.
fn note_skew(bench: &mut Bench, at_ns: &[[u64; 2]]) {
    for end in 0..2 {
        let at = at_ns.iter().map(|ends| ends[end]);
        let skew = at.clone().max().unwrap_or(0) - at.min().unwrap_or(0);
        let window = at_ns[0][1] - at_ns[0][0];
        if skew > window / SKEW_NOTED {
            bench.notes.push(format!(
                "the VMs were read {skew} ns apart in a measuring time of {window} ns; is the agent allowed \
                 SCHED_FIFO?"
            ));
        }
    }
}
