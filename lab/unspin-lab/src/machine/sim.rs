// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machine `sim`: a model of a host (lab/sim). Runs are independent, so several threads simulate
//! them. Records are in the plan's order for any number of threads.

use super::{Job, Machine, Refusal, Sink};
use crate::exit::Usage;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use unspin_scenario::plan::Plan;
use unspin_scenario::result::{Begin, Progress, Record};
use unspin_sim::{simulate, Host, Kernel};

pub struct Simulated;

impl Machine for Simulated {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn default_kernel(&self) -> &str {
        Kernel::V6_12.name()
    }

    fn measures(&self) -> bool {
        false
    }

    fn shares(&self, _: u32) -> u32 {
        1
    }

    fn check_kernel(&self, name: &str) -> Result<(), Refusal> {
        Kernel::parse(name).map(|_| ()).ok_or_else(|| Refusal {
            message: format!("machine sim does not model kernel {name:?}"),
            allowed: Kernel::ALL.map(Kernel::name).join(", "),
        })
    }

    fn check_vcpus(&self, _: u32) -> Result<(), Refusal> {
        Ok(())
    }

    fn check_plan(&self, plan: &Plan) -> Result<(), (&'static str, Refusal)> {
        // All kernels divide the runs in the same way.
        let host = Host::of_plan(plan, Kernel::V6_12);
        let wrong =
            plan.runs.iter().find_map(|run| Some((run, unspin_sim::check(&host, run).err()?)));
        wrong.map_or(Ok(()), |(run, e)| {
            let message = format!("arm {:?}, {e}", run.arm.name);
            let allowed = "a combination that docs/simulator.md lists".to_string();
            Err(("host", Refusal { message, allowed }))
        })
    }

    fn image(&self, _: &AtomicBool) -> anyhow::Result<String> {
        super::job::program_hash(&[])
    }

    fn run(&self, job: &Job, sink: &mut Sink) -> anyhow::Result<()> {
        let host = Host::of_plan(job.plan, kernel(job.kernel)?);
        let runs = &job.plan.runs;
        sink(Record::Begin(begin(job.plan, &host)))?;
        let next = AtomicUsize::new(0);
        let stopped = || job.stop.load(Ordering::Relaxed);
        let failed = std::thread::scope(|s| {
            // Bounded, so that finished runs do not pile up behind a slow one.
            let (send, received) = mpsc::sync_channel(2 * job.threads.max(1));
            for _ in 0..job.threads.clamp(1, runs.len().max(1)) {
                let (send, next, host) = (send.clone(), &next, &host);
                s.spawn(move || loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(run) = runs.get(index) else { return };
                    if stopped() || send.send((index, simulate(host, run))).is_err() {
                        return;
                    }
                });
            }
            drop(send);
            let mut waiting = BTreeMap::new();
            let mut at = 0;
            let mut failed = 0;
            while let Ok((index, result)) = received.recv() {
                waiting.insert(index, result);
                while let Some(result) = waiting.remove(&at) {
                    failed += u32::from(result.is_err());
                    let begins = Progress::of(&runs[at], at + 1, runs.len(), "");
                    sink(Record::Progress(begins))?;
                    sink(match result {
                        Ok(simulated) => Record::Run(Box::new(simulated.result)),
                        Err(e) => Record::Failed { id: runs[at].id, error: e.to_string() },
                    })?;
                    at += 1;
                }
            }
            anyhow::Ok(failed)
        })?;
        if stopped() {
            return Ok(());
        }
        sink(Record::End { runs: runs.len() as u32 - failed, failed })
    }
}

/// Writes the records of a job none of whose runs is possible.
pub fn refuse(job: &Job, why: &str, sink: &mut Sink) -> anyhow::Result<()> {
    sink(Record::Begin(begin(job.plan, &Host::of_plan(job.plan, kernel(job.kernel)?))))?;
    for run in &job.plan.runs {
        sink(Record::Failed { id: run.id, error: why.to_string() })?;
    }
    sink(Record::End { runs: 0, failed: job.plan.runs.len() as u32 })
}

pub fn kernel(name: &str) -> anyhow::Result<Kernel> {
    Kernel::parse(name).ok_or_else(|| {
        let known = Kernel::ALL.map(Kernel::name).join(", ");
        Usage(format!("machine sim does not model kernel {name}; it models: {known}")).into()
    })
}

fn begin(plan: &Plan, host: &Host) -> Begin {
    let settings = [
        ("tick_ns", host.tick_ns.to_string()),
        ("ple_gap", host.ple_gap_cycles.to_string()),
        ("ple_window", host.window.base_cycles.to_string()),
        ("ple_window_grow", host.window.grow.to_string()),
        ("ple_window_shrink", host.window.shrink.to_string()),
        ("ple_window_max", host.window.max_cycles.to_string()),
        ("costs", format!("{:?}", host.costs)),
    ];
    Begin {
        kernel: format!("{} (model)", host.kernel.name()),
        cpu_model: format!("model of a CPU of {} MHz", host.khz / 1000),
        pcpus: host.pcpus,
        tsc_khz: Some(host.khz),
        settings: settings.into_iter().map(|(name, value)| (name.to_string(), value)).collect(),
        ..Begin::of(plan)
    }
}
