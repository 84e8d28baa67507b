// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers beside the VMs of a run: those that an arm adds to the host, and watchers. One list
//! gives the order in which they start; they end in the order of the fields.

use unspin_scenario::plan::Run;
use unspin_scenario::result::{RunResult, VcpuStates, VmResult, Wakeups};

use crate::bench::Bench;
use crate::beside::Helper;
use crate::hogs::Hogs;
use crate::trace::{self, Trace};
use crate::wakeups::Tasks;
use crate::{credit, schedule, shape, Error};

/// Each VM's process and its vCPU threads.
pub(crate) type Each = [(u32, Vec<i32>)];

pub(crate) struct Watchers {
    credit: Option<Helper>,
    scheduling: Option<Helper>,
    shaping: Option<Helper>,
    trace: Option<Trace>,
    tasks: Option<Tasks>,
    hogs: Hogs,
}

/// The results of the helpers.
pub(crate) struct Ended {
    /// Per vCPU, of each VM that was watched.
    states: Option<Vec<Vec<VcpuStates>>>,
    lines: Vec<String>,
    wakeups: Option<Wakeups>,
    hogs_cpu_ns: Vec<u64>,
}

impl Watchers {
    pub(crate) fn start(bench: &mut Bench, run: &Run, each: &Each) -> Result<Watchers, Error> {
        let pids: Vec<u32> = each.iter().map(|(pid, _)| *pid).collect();
        let tids: Vec<Vec<i32>> = each.iter().map(|(_, tids)| tids.clone()).collect();
        let pcpus = bench.cpus.count;
        let trace = match &bench.module {
            Some(_) => Trace::start(run)?,
            None => None,
        };
        if bench.module.is_none() && (run.trace_epochs || run.trace_picks) {
            bench.notes.push(format!("run {}: no trace without the module", run.id));
        }
        Ok(Watchers {
            trace,
            credit: credit::start(run, &tids, bench.cpus)?,
            scheduling: schedule::start(run, &pids, pcpus)?,
            shaping: shape::start(run, &pids)?,
            tasks: run.wakeups_hz.map(|hz| Tasks::start(pcpus, hz)),
            hogs: Hogs::start(pcpus, run.hogs),
        })
    }

    pub(crate) fn measure_in(
        &self,
        bench: &mut Bench,
        run: &Run,
        each: &Each,
        window: [u64; 2],
    ) -> Result<(), Error> {
        bench.watcher.begin(run, each, window)?;
        self.tasks.iter().for_each(|tasks| tasks.wake_in(window));
        self.hogs.count_in(window);
        Ok(())
    }

    pub(crate) fn end(self, bench: &mut Bench, run: &Run) -> Result<Ended, Error> {
        let mut note = |text: String| bench.notes.push(format!("run {}: {text}", run.id));
        let states = bench.watcher.end(run)?;
        if let Some(credit) = self.credit {
            note(format!("Credit: {}", credit.end()?));
        }
        for command in self.scheduling.into_iter().chain(self.shaping) {
            note(command.end()?.replace('\n', "; "));
        }
        let mut lines = Vec::new();
        if let Some(trace) = &self.trace {
            trace.stop()?;
            lines = trace.lines()?;
            if let lost @ 1.. = trace.lost() {
                note(format!("{lost} trace events lost"));
            }
        }
        let wakeups = self.tasks.and_then(Tasks::result);
        Ok(Ended { states, lines, wakeups, hogs_cpu_ns: self.hogs.cpu_ns() })
    }
}

impl Ended {
    /// The run's result, without the length of the measuring time and without values that only some guests
    /// have. Epochs count from `first_ns`.
    pub(crate) fn result(
        self,
        run: &Run,
        vms: impl Iterator<Item = VmResult>,
        pids: &[u32],
        first_ns: u64,
    ) -> RunResult {
        let mut states = self.states.into_iter().flatten();
        let vms = vms.map(|vm| VmResult { states: states.next(), ..vm });
        RunResult {
            epochs: trace::epochs(&self.lines, pids, first_ns),
            trace: self.lines,
            wakeups: self.wakeups,
            hogs_cpu_ns: self.hogs_cpu_ns,
            ..RunResult::new(run.clone(), 0, vms.collect())
        }
    }
}
