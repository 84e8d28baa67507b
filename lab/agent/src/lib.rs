// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a plan on this computer: sets the module's mode, starts the VMs, reads counts at both ends
//! of the measuring time, and reports their differences.
//!
//! The same code runs on a real host and inside an emulated computer; only the [`Sink`] differs.

mod bench;
mod beside;
mod cgroup;
mod check;
mod child;
mod credit;
mod ends;
mod error;
mod hogs;
mod host;
mod interrupt;
mod known_vms;
mod linux;
mod measure;
mod module;
mod qemu;
mod schedule;
mod shape;
mod sink;
mod trace;
mod vms;
mod wakeups;
mod watch;
mod watchers;

use unspin_scenario::plan::{Plan, SCHEMA};
use unspin_scenario::result::{Progress, Record};

use error::complain;
pub use error::Error;
pub use host::{cpu_model, online_cpus};
pub use interrupt::is_ignored;
pub use module::settings_for;
pub use sink::{frame, Sink};

pub const USAGE: &str = "usage: agent PLAN.json [--out FILE|port-e9|stdout]";

const EXIT_FAILED: i32 = 1;
const EXIT_USAGE: i32 = 2;
/// This computer cannot run the plan now. The reason was reported.
pub const EXIT_CANNOT: i32 = 77;
const EXIT_INTERRUPTED: i32 = 130;

/// Runs the command that a binary's arguments begin with. Returns its exit code; `None` if it is
/// none of the agent's.
pub fn command_main(args: &[String]) -> Option<i32> {
    let (command, rest) = args.split_first()?;
    match command.as_str() {
        "agent" => Some(agent_main(rest)),
        "say" => Some(say_main(rest)),
        unspin_vmm::VM_PROCESS_COMMAND => Some(unspin_vmm::vm_process_main(rest)),
        _ => None,
    }
}

/// `agent PLAN.json [--out FILE|port-e9|stdout]`. Returns the exit code: 0 if every run succeeded.
pub fn agent_main(args: &[String]) -> i32 {
    let (plan, out) = match args {
        [plan] => (plan, "stdout"),
        [plan, option, out] if option == "--out" => (plan, out.as_str()),
        _ => {
            eprintln!("{USAGE}");
            return EXIT_USAGE;
        }
    };
    let opened = read_plan(plan).and_then(|plan| Ok((plan, Sink::open(out)?)));
    let (plan, mut sink) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            eprintln!("agent: {error}");
            return EXIT_FAILED;
        }
    };
    let failed = match run_plan(&plan, &mut |record| sink.send(&record)) {
        Ok(0) => return 0,
        Ok(failed) => {
            complain(&format!("{failed} of {} runs failed", plan.runs.len()));
            return EXIT_FAILED;
        }
        Err(error) => error,
    };
    if matches!(failed, Error::Interrupted) {
        return EXIT_INTERRUPTED;
    }
    complain(&failed.to_string());
    match failed {
        Error::OtherVms { .. } => EXIT_CANNOT,
        _ => EXIT_FAILED,
    }
}

/// `say TEXT…` or `say --end DONE FAILED`: one record through port 0xE9, for scripts inside an
/// emulated computer. Returns the exit code.
pub fn say_main(args: &[String]) -> i32 {
    let record = match args {
        [option, done, failed] if option == "--end" => match (done.parse(), failed.parse()) {
            (Ok(runs), Ok(failed)) => Record::End { runs, failed },
            _ => {
                eprintln!("usage: say --end DONE FAILED, both numbers");
                return EXIT_USAGE;
            }
        },
        words => Record::Log { text: words.join(" ") },
    };
    match Sink::open("port-e9").and_then(|mut sink| sink.send(&record)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("agent: {error}");
            EXIT_FAILED
        }
    }
}

/// Receives each record.
pub type Give<'a> = dyn FnMut(Record) -> Result<(), Error> + 'a;

/// Runs the runs of `plan` in order, and gives every record to `sink`. Returns the number of failed
/// runs. A failed run does not stop the others, but a record that cannot be delivered does. The
/// module's defaults and the scheduler's slice are always restored at the end.
pub fn run_plan(plan: &Plan, sink: &mut Give) -> Result<u32, Error> {
    interrupt::install();
    let mut failed = 0;
    match prepare(plan) {
        Ok(mut bench) => {
            sink(Record::Begin(host::begin(plan)))?;
            for (at, run) in (1..).zip(&plan.runs) {
                sink(Record::Progress(Progress::of(run, at, plan.runs.len(), "")))?;
                match measure::measure(&mut bench, run, &plan.runs[at..]) {
                    Ok(result) => sink(Record::Run(Box::new(result)))?,
                    // The rest of the plan can be run later.
                    Err(error @ (Error::Interrupted | Error::OtherVms { .. })) => {
                        return Err(error)
                    }
                    Err(error) => {
                        failed += 1;
                        sink(Record::Failed { id: run.id, error: error.to_string() })?;
                    }
                }
                for text in bench.notes.drain(..) {
                    sink(Record::Log { text })?;
                }
            }
        }
        Err(error @ Error::OtherVms { .. }) => return Err(error),
        Err(error) => {
            for run in &plan.runs {
                sink(Record::Failed { id: run.id, error: error.to_string() })?;
            }
            failed = plan.runs.len() as u32;
        }
    }
    sink(Record::End { runs: plan.runs.len() as u32 - failed, failed })?;
    Ok(failed)
}

fn prepare(plan: &Plan) -> Result<bench::Bench, Error> {
    if plan.schema != SCHEMA {
        return Err(Error::Schema { plan: plan.schema, agent: SCHEMA });
    }
    let online = host::online_cpus()?;
    if online < plan.host.pcpus {
        return Err(Error::FewCpus { wanted: plan.host.pcpus, online });
    }
    let module = module::Module::open()?;
    module.iter().try_for_each(|module| module.check_alone(&[]))?;
    let slice = plan.host.slice_ns.map(host::Slice::set).transpose()?;
    let guests = linux::Guests::new(plan.linux.clone());
    let cpus = cgroup::Cpus::of(plan);
    let (watcher, notes) = (watch::Watcher::default(), Vec::new());
    Ok(bench::Bench { module, guests, watcher, cpus, notes, _slice: slice })
}

fn read_plan(path: &str) -> Result<Plan, Error> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
    Plan::from_json(text.as_bytes()).map_err(|source| Error::Plan { path: path.into(), source })
}
