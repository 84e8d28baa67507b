// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the same application on the simulator, to check that it scales as the model predicts.

use crate::{App, Prediction, Sequential};
use unspin_scenario::plan::{Arm, CgroupLayout, Op, Platform, Run, Step};
use unspin_sim::{simulate_setup, Host, Kernel, Setup, VmSetup};

/// Cycles of the modelled server in a millisecond; one iteration is one.
const CYCLES_PER_MS: f64 = 2_400_000.0;
/// Largest number of iterations of one step.
const ITERATIONS_MAX: f64 = 1e9;
const WARMUP_MS: u64 = 200;

/// The simulator's results.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confirmed {
    pub speedup_pm: f64,
    pub speedup_vm: f64,
    /// The part of the VM's time slices that its work used.
    pub efficiency_vm: f64,
}

/// How much a simulated speedup may differ from the model's to confirm it: a quarter, as for all
/// ratios that are compared with the papers'.
pub const TOLERANCE: f64 = 0.25;

impl Confirmed {
    /// Whether both simulated speedups are within [`TOLERANCE`] of the model's.
    pub fn agrees_with(&self, model: &Prediction) -> bool {
        let near = |ours: f64, model: f64| (ours / model - 1.0).abs() <= TOLERANCE;
        near(self.speedup_pm, model.speedup_pm) && near(self.speedup_vm, model.speedup_vm)
    }
}

/// The program of an application with `units` units: each phase is sequential work for one thread
/// and work for all, in the proportion that gives its mean of working threads. While one works, the
/// others have joined and sleep. Between phases for all, all wait asleep.
pub fn program(app: &App, units: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    let step = |op, ms: f64| {
        let iterations = (ms * CYCLES_PER_MS).round().clamp(0.0, ITERATIONS_MAX) as u32;
        Step::new(op, iterations)
    };
    // Divided into several steps if necessary, because a step has a maximum length.
    let parts = |op, ms: f64| {
        let parts = (ms * CYCLES_PER_MS / ITERATIONS_MAX).ceil().max(1.0);
        std::iter::repeat_n(step(op, ms / parts), parts as usize)
    };
    let full = f64::from(app.units);
    let alone = match app.sequential {
        Sequential::Same => Op::SerialFirst,
        Sequential::Rotating => Op::SerialRotating,
    };
    let barrier = step(Op::Barrier, 0.0);
    for phase in app.phases.iter().filter(|p| p.threads > 0) {
        let threads = f64::from(phase.threads);
        // The part of its time in which all work; one works in the rest.
        let all = if full > 1.0 { (threads - 1.0) / (full - 1.0) } else { 1.0 };
        let (parallel_ms, sequential_ms) = (phase.ms * all, phase.ms * (1.0 - all));
        if sequential_ms > 0.0 {
            // This waits until all have joined, and all wait for it, so no further barrier is
            // needed.
            if steps.last() == Some(&barrier) {
                steps.pop();
            }
            steps.extend(parts(alone, sequential_ms));
        }
        if parallel_ms > 0.0 {
            steps.extend(parts(Op::Compute, parallel_ms * full / f64::from(units)));
            steps.push(barrier);
        }
    }
    // The first phase of the next pass makes all threads wait.
    let joins = |s: &Step| matches!(s.op, Op::SerialFirst | Op::SerialRotating);
    if steps.len() > 1 && steps.first().is_some_and(joins) && steps.last() == Some(&barrier) {
        steps.pop();
    }
    steps
}

/// Runs the application on the modelled server (2.4 GHz, CFS) with one unit and with all, without a
/// VMM and in a VM beside others that never rest, as many as the VM's share asks for; each run
/// measures `window_ms`. A speedup is the CPU time that work used with all units over what it used
/// with one, which no pass cut off by the window's end falsifies.
///
/// # Errors
/// An application the simulator cannot run, such as one of more than 32 steps (a step lasts 417 ms at most).
pub fn confirm(app: &App, window_ms: u64, seed: u64) -> Result<Confirmed, unspin_sim::Error> {
    let useful_ns = |units: u32, physical: bool| -> Result<f64, unspin_sim::Error> {
        let made = simulate_setup(&setup(app, units, physical, window_ms, seed))?;
        Ok(made.result.vm[0].attribution.map_or(0.0, |a| a.useful_ns as f64))
    };
    let speedup_pm = useful_ns(app.units, true)? / useful_ns(1, true)?;
    let speedup_vm = useful_ns(app.units, false)? / useful_ns(1, false)?;
    Ok(Confirmed { speedup_pm, speedup_vm, efficiency_vm: speedup_vm / f64::from(app.units) })
}

/// The run of an application with this many units: without a VMM, or in a VM beside others that
/// never rest. The setup's first VM is the application's.
pub fn setup(app: &App, units: u32, physical: bool, window_ms: u64, seed: u64) -> Setup {
    let others = if physical { 0 } else { (1.0 / app.share).round().max(1.0) as u32 - 1 };
    let arm = Arm {
        name: "stock".into(),
        platform: Platform { physical, ..Platform::default() },
        ..Arm::default()
    };
    let run = Run {
        profile: app.name.clone(),
        arm,
        seed,
        warmup_ms: WARMUP_MS,
        window_ms,
        stagger_ms: 20,
        cgroup: CgroupLayout::Vcpu,
        ..Run::new(program(app, units), 1 + others, units).with(|vm| vm.pin = (0..units).collect())
    };
    let host = Host::server(units, Kernel::V3_19).with_period_ns((app.period_ms * 1e6) as u64);
    // Two sockets of eight cores.
    let host = Host { skew_tick: false, group_load_lags: true, llc_pcpus: Some(8), ..host };
    let mut setup = Setup::new(&host, &run);
    for hog in setup.vms.iter_mut().skip(1) {
        // A program that counts and never rests.
        let compute = Step::new(Op::Compute, 2_400_000);
        *hog = VmSetup { program: vec![compute], ..hog.clone() };
    }
    setup
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Allocation, Phase};

    fn app(units: u32, phases: &[(u32, f64)]) -> App {
        let phases = phases.iter().map(|&(threads, ms)| Phase { threads, ms });
        App::new("test", units, 0.25, phases.collect())
    }

    #[test]
    fn a_parallel_program_scales_in_both() {
        let app = app(4, &[(4, 20.0)]);
        let c = confirm(&app, 6000, 1).unwrap();
        assert!((c.speedup_pm - 4.0).abs() < 0.2, "{c:?}");
        assert!((c.speedup_vm - 4.0).abs() < 0.5, "{c:?}");
    }

    #[test]
    fn the_machine_scales_as_amdahl_says() {
        let app = app(4, &[(1, 5.0), (4, 5.0)]);
        let c = confirm(&app, 2000, 1).unwrap();
        let p = app.predict(Allocation::Even);
        // The simulator gives 3.60 in the VM, the model 2.50.
        assert!(!c.agrees_with(&p), "{c:?} {p:?}");
        assert!(c.agrees_with(&Prediction { speedup_vm: c.speedup_vm / 1.2, ..p }));
        assert!(!c.agrees_with(&Prediction { speedup_pm: p.speedup_pm * 1.4, ..p }));
        assert!((c.speedup_pm - p.speedup_pm).abs() < 0.1, "{c:?} {p:?}");
        // Longer than the longest step, for one thread and for all.
        let long = self::app(4, &[(1, 500.0), (4, 600.0)]);
        let (c, p) = (confirm(&long, 20_000, 1).unwrap(), long.predict(Allocation::Even));
        assert!((c.speedup_pm / p.speedup_pm - 1.0).abs() < 0.05, "{c:?} {p:?}");
        let endless = self::app(4, &[(1, 3_600_000.0)]);
        assert!(confirm(&endless, 10, 1).unwrap_err().to_string().contains("steps"));
        // Faster than the slices of one vCPU, and faster than a machine: a thread that works alone
        // has more than a quarter of its core. Not faster than with the cores' whole time.
        assert!(c.speedup_vm > c.speedup_pm && c.speedup_vm < c.speedup_pm / 0.25, "{c:?}");
    }
}
