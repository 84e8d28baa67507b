// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run: VMs made, started, read at both ends of the window, stopped.

use unspin_guest_abi::rng::{splitmix64, vm_seed};
use unspin_scenario::plan::{CgroupLayout, Run, Window};
use unspin_scenario::result::{ModuleStats, RunResult, Stalls, VmResult};
use unspin_vmm::process::{now_ns, Sample, Schedule};
use unspin_vmm::{Realtime, VcpuSample, VmConfig};

use crate::cgroup::VmCgroup;
use crate::child::{readable_until, VmProcess};
use crate::host::Slice;
use crate::module::{self, Module};
use crate::trace::{self, Trace};
use crate::Error;

/// From the last preparation until the first VM may start.
const START_LEAD_NS: u64 = 20_000_000;
/// Readings of the VMs that lie further apart than this share of the window are worth a note.
const SKEW_NOTED: u64 = 200;
const NS_PER_MS: u64 = 1_000_000;

/// What lasts from run to run.
pub(crate) struct Bench {
    pub(crate) module: Option<Module>,
    /// Lines for people that came up in the run.
    pub(crate) notes: Vec<String>,
    pub(crate) _slice: Option<Slice>,
}

pub(crate) fn measure(bench: &mut Bench, run: &Run) -> Result<RunResult, Error> {
    check(run)?;
    // Settings first: VMs take them over when they are made.
    match &bench.module {
        Some(module) => {
            module.check_alone()?;
            module.set_defaults(run)?;
        }
        None if module::needed(&run.arm) => {
            return Err(Error::NoModule { arm: run.arm.name.clone() });
        }
        None => {}
    }
    let trace = match bench.module {
        Some(_) => Trace::start(run)?,
        None => {
            if run.trace_epochs || run.trace_picks {
                bench.notes.push(format!("run {}: no trace without the module", run.id));
            }
            None
        }
    };
    let mut vms = start_vms(run)?;
    let (start_ns, [begin_ns, end_ns]) = schedule(run, &mut vms.processes)?;
    let (first, second) = {
        let _realtime = Realtime::enter();
        let first = module_stats(bench, run, &vms, begin_ns)?;
        (first, module_stats(bench, run, &vms, end_ns)?)
    };
    let mut samples = Vec::with_capacity(vms.processes.len());
    for process in &mut vms.processes {
        samples.push(process.samples()?);
    }
    if let Some(trace) = &trace {
        trace.stop()?;
    }
    let errors = stop_vms(&mut vms)?;
    note_skew(bench, &samples);

    let lines = trace.as_ref().map_or(Ok(Vec::new()), Trace::lines)?;
    if let Some(lost @ 1..) = trace.as_ref().map(Trace::lost) {
        bench.notes.push(format!("run {}: {lost} trace events lost", run.id));
    }
    let counted = first
        .iter()
        .zip(&second)
        .map(|ends| match ends {
            (Some(a), Some(b)) => module::difference(a, b).map(Some),
            _ => Ok(None),
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let window_ns: u64 = samples.iter().map(|[a, b]| b.at_ns - a.at_ns).sum();
    Ok(RunResult {
        run: run.clone(),
        window_ns: window_ns / samples.len() as u64,
        vm: samples
            .iter()
            .zip(counted)
            .zip(errors)
            .map(|((sample, module), error)| VmResult { module, error, ..vm_result(sample) })
            .collect(),
        epochs: trace::epochs(&lines, &vms.pids, start_ns),
        trace: lines,
    })
}

/// The VMs of a run. The cgroups go after the processes in them.
struct Vms {
    processes: Vec<VmProcess>,
    pids: Vec<u32>,
    _cgroups: Vec<VmCgroup>,
}

/// Makes all VMs, then moves them to their cgroups; their vCPUs wait for the start.
fn start_vms(run: &Run) -> Result<Vms, Error> {
    let mut processes = Vec::with_capacity(run.vms as usize);
    for vm in 0..run.vms {
        let each = run.vm(vm);
        let config = VmConfig {
            vcpus: each.vcpus,
            program: each.program,
            lock: each.lock,
            tau_ns: each.tau_ns,
            lock_clock_mhz: run.lock_clock_mhz,
            stalls: run.stalls,
            cpl: each.cpl,
            seed: vm_seed(run.seed, vm),
            pin: run.pin.get(vm as usize).cloned().unwrap_or_default(),
            pause_exits: run.arm.window != Window::Off,
        };
        processes.push(VmProcess::spawn(vm, &config)?);
    }
    let mut vms = Vms { pids: Vec::new(), processes, _cgroups: Vec::new() };
    for (vm, process) in vms.processes.iter_mut().enumerate() {
        process.wait_ready()?;
        vms.pids.push(process.pid());
        let weight = run.weights.get(vm).copied();
        let cgroup = VmCgroup::new(vm as u32, run.cgroup, weight, process.pid(), &process.tids)?;
        vms._cgroups.extend(cgroup);
    }
    Ok(vms)
}

/// Tells every VM when to start and when to read. Returns the first start and the window.
fn schedule(run: &Run, processes: &mut [VmProcess]) -> Result<(u64, [u64; 2]), Error> {
    let base = now_ns() + START_LEAD_NS;
    let starts: Vec<u64> = (0..run.vms).map(|vm| base + stagger_ns(run, vm)).collect();
    let last = starts.iter().copied().max().unwrap_or(base);
    let begin = last + run.warmup_ms * NS_PER_MS;
    let sample_at_ns = [begin, begin + run.window_ms * NS_PER_MS];
    for (process, &start_at_ns) in processes.iter_mut().zip(&starts) {
        process.schedule(Schedule { start_at_ns, sample_at_ns })?;
    }
    Ok((starts.iter().copied().min().unwrap_or(base), sample_at_ns))
}

fn stagger_ns(run: &Run, vm: u32) -> u64 {
    splitmix64(vm_seed(run.seed, vm)) % (run.stagger_ms * NS_PER_MS + 1)
}

/// The module's counters of every VM at `at_ns`; an error as soon as one of the VMs fails.
fn module_stats(
    bench: &Bench,
    run: &Run,
    vms: &Vms,
    at_ns: u64,
) -> Result<Vec<Option<ModuleStats>>, Error> {
    let fds: Vec<i32> = vms.processes.iter().map(VmProcess::fd).collect();
    // Something to read before its time is a failure; whoever reads the samples meets it.
    readable_until(&fds, at_ns)?;
    let module = bench.module.as_ref().filter(|_| module::counts(run));
    let stats = |&pid: &u32| module.map_or(Ok(None), |module| module.stats(pid));
    vms.pids.iter().map(stats).collect()
}

fn stop_vms(vms: &mut Vms) -> Result<Vec<Option<String>>, Error> {
    for process in &mut vms.processes {
        process.stop()?;
    }
    vms.processes.iter_mut().map(VmProcess::stopped).collect()
}

fn vm_result([first, second]: &[Sample; 2]) -> VmResult {
    let per_vcpu = |count: fn(&VcpuSample) -> u64| {
        let pairs = first.vcpus.iter().zip(&second.vcpus);
        pairs.map(|(a, b)| count(b).saturating_sub(count(a))).collect::<Vec<u64>>()
    };
    // A histogram of all vCPUs together.
    let merged = |hist: fn(&VcpuSample) -> &[u64]| {
        let buckets = second.vcpus.first().map_or(0, |vcpu| hist(vcpu).len());
        let sum = |at: &Sample, b: usize| at.vcpus.iter().map(|v| hist(v)[b]).sum::<u64>();
        (0..buckets).map(|b| sum(second, b) - sum(first, b)).collect::<Vec<u64>>()
    };
    let stalls = Stalls { free: merged(|v| &v.stalls_free), held: merged(|v| &v.stalls_held) };
    VmResult {
        units: per_vcpu(|v| v.units),
        acquisitions: per_vcpu(|v| v.acquisitions),
        cpu_ns: per_vcpu(|v| v.cpu_ns),
        wait_hist: merged(|v| &v.wait_hist),
        stalls: (!stalls.free.is_empty()).then_some(stalls),
        max_wait_cycles: second.vcpus.iter().map(|v| v.max_wait_cycles).max().unwrap_or(0),
        module: None,
        error: None,
        attribution: None,
        sched: None,
    }
}

fn note_skew(bench: &mut Bench, samples: &[[Sample; 2]]) {
    for end in 0..2 {
        let at = samples.iter().map(|s| s[end].at_ns);
        let skew = at.clone().max().unwrap_or(0) - at.min().unwrap_or(0);
        let window = samples[0][1].at_ns - samples[0][0].at_ns;
        if skew > window / SKEW_NOTED {
            bench.notes.push(format!(
                "the VMs were read {skew} ns apart in a window of {window} ns; is the agent allowed \
                 SCHED_FIFO?"
            ));
        }
    }
}

fn check(run: &Run) -> Result<(), Error> {
    let wrong = |text: String| Err(Error::Run(format!("run {}: {text}", run.id)));
    if run.vms == 0 {
        return wrong("no VMs".into());
    }
    if !run.pin.is_empty() && run.pin.len() != run.vms as usize {
        return wrong(format!("CPUs for {} VMs, but {} VMs", run.pin.len(), run.vms));
    }
    if !run.weights.is_empty() && run.weights.len() != run.vms as usize {
        return wrong(format!("weights for {} VMs, but {} VMs", run.weights.len(), run.vms));
    }
    if let Some(weight) = run.weights.iter().find(|w| !(1..=10_000).contains(*w)) {
        return wrong(format!("weight {weight}; cpu.weight is 1 to 10000"));
    }
    let unequal = run.weights.iter().any(|w| *w != run.weights[0]);
    if unequal && run.cgroup == CgroupLayout::Flat {
        return wrong("weights need cgroups; use the layout `vm` or `vcpu`".into());
    }
    if run.window_ms == 0 {
        return wrong("window_ms is 0".into());
    }
    if !run.each.is_empty() && run.each.len() != run.vms as usize {
        return wrong(format!("says what {} VMs are, of {}", run.each.len(), run.vms));
    }
    if run.each.iter().any(|vm| vm.mode_off) {
        return wrong(
            "a VM has mode = \"off\" of its own, but here the arm's settings are taken over by every \
             VM made; use machine sim, or leave the mode out"
                .into(),
        );
    }
    for vm in 0..run.vms {
        let each = run.vm(vm);
        unspin_guest_abi::compile(&each.program, each.cpl).map_err(unspin_vmm::Error::from)?;
    }
    Ok(())
}
