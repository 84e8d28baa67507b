// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machine `threads`: vCPUs are threads of this computer (lab/threads). Every run is a separate
//! process (`unspin-lab threads-run`), so that one whose lock hangs can be ended and the plan
//! continues.

use super::{Job, Machine, Refusal, Sink, Wish};
use crate::exit::{Cannot, Usage};
use crate::host;
use crate::worlds::time::length_ms;
use anyhow::{bail, Context};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unspin_scenario::plan::{Plan, Run};
use unspin_scenario::result::{Begin, Progress, Record, RunResult};
use unspin_text::counted;
use unspin_threads::machine::{cpus, refusal, run, GRACE};

/// Time after a run's own length and its locks' grace period at which its process is killed.
const OVERTIME: Duration = Duration::from_secs(30);

pub struct Threads {
    release: String,
}

/// The input of a run's process, on its standard input.
#[derive(Serialize, Deserialize)]
struct Task {
    pcpus: u32,
    run: Run,
}

impl Threads {
    /// This computer, if it has enough CPUs.
    pub fn new(wish: &Wish) -> anyhow::Result<Threads> {
        let has = cpus();
        if has < wish.pcpus {
            return Err(Cannot(format!(
                "machine threads: the scenario needs {}, and this process may run on {has}",
                counted(wish.pcpus, "CPU")
            ))
            .into());
        }
        Ok(Threads { release: host::release(Path::new("/"))? })
    }
}

impl Machine for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn default_kernel(&self) -> &str {
        &self.release
    }

    fn boots(&self) -> bool {
        false
    }

    fn check_plan(&self, plan: &Plan) -> Result<(), (&'static str, Refusal)> {
        let refused = plan.runs.iter().find_map(|run| Some((run, refusal(run)?)));
        match refused {
            None => Ok(()),
            Some((run, why)) => {
                let message = format!("on machine threads, arm {:?} {why}", run.arm.name);
                let allowed = "arms of machine threads compare locks: lock = \"…\"".to_string();
                Err(("arm", Refusal { message, allowed }))
            }
        }
    }

    fn image(&self, _: &AtomicBool) -> anyhow::Result<String> {
        super::job::program_hash(&[])
    }

    fn run(&self, job: &Job, sink: &mut Sink) -> anyhow::Result<()> {
        sink(Record::Begin(begin(job.plan, &self.release)))?;
        let total = job.plan.runs.len();
        let mut failed = 0;
        for (at, run) in (1..).zip(&job.plan.runs) {
            let lock = format!(", lock {}", run.first().lock.name());
            sink(Record::Progress(Progress::of(run, at, total, &lock)))?;
            let made = process(&Task { pcpus: job.plan.host.pcpus, run: run.clone() }, job.stop);
            if job.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            sink(match made {
                Ok(result) => Record::Run(Box::new(result)),
                Err(e) => {
                    failed += 1;
                    Record::Failed { id: run.id, error: format!("{e:#}") }
                }
            })?;
        }
        sink(Record::End { runs: total as u32 - failed, failed })
    }
}

/// Runs one run in a separate process.
fn process(task: &Task, stop: &AtomicBool) -> anyhow::Result<RunResult> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut child = Command::new(program)
        .arg("threads-run")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the run's process")?;
    let told = child.stdin.take().map(|mut to| to.write_all(&serde_json::to_vec(task)?));
    let ended = wait(&mut child, task, stop);
    if ended.is_err() {
        // The process may already have ended.
        let _ = child.kill();
    }
    let output = child.wait_with_output().context("cannot wait for the run's process")?;
    ended?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    if !output.status.success() {
        bail!("{}", if said.is_empty() { output.status.to_string() } else { said });
    }
    told.transpose()?;
    serde_json::from_slice(&output.stdout).context("the run's process gave no result")
}

/// Waits until the process has ended; an error if it had to be killed.
fn wait(child: &mut Child, task: &Task, stop: &AtomicBool) -> anyhow::Result<()> {
    let run = &task.run;
    let length = Duration::from_millis(length_ms(run));
    let allowed = length + GRACE + OVERTIME;
    let began = Instant::now();
    // A result has a few kilobytes at most, so the process never blocks on its output.
    while child.try_wait().context("cannot wait for the run's process")?.is_none() {
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        if began.elapsed() > allowed {
            bail!("killed: it did not end within {} s", allowed.as_secs());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// `unspin-lab threads-run`: one run, from standard input to standard output.
pub fn run_process() -> anyhow::Result<()> {
    // SAFETY: no memory involved. Spinning threads must not survive the program that started them.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read the run")?;
    let task: Task = serde_json::from_str(&text)
        .map_err(|e| Usage(format!("not a run: {e}; only unspin-lab bench starts this command")))?;
    crate::out::json(&run(&task.run, task.pcpus)?)
}

fn begin(plan: &Plan, release: &str) -> Begin {
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    let mut settings = BTreeMap::new();
    // The scheduler decides which threads are preempted; figures from a busy computer are useless.
    for (name, path) in [
        ("base_slice_ns", "/sys/kernel/debug/sched/base_slice_ns"),
        ("preempt", "/sys/kernel/debug/sched/preempt"),
        ("load_average", "/proc/loadavg"),
        ("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ] {
        if let Some(value) = read(path) {
            settings.insert(name.to_string(), value);
        }
    }
    Begin {
        kernel: release.to_string(),
        cpu_model: unspin_agent::cpu_model(),
        pcpus: cpus(),
        tsc_khz: tsc_khz(),
        settings,
        ..Begin::of(plan)
    }
}

/// Rate of the clock in which waits are counted, as measured.
#[cfg(target_arch = "x86_64")]
fn tsc_khz() -> Option<u64> {
    // SAFETY: every x86-64 has the counter.
    let ticks = || unsafe { std::arch::x86_64::_rdtsc() };
    let (began, first) = (Instant::now(), ticks());
    std::thread::sleep(Duration::from_millis(50));
    let (ticks, ns) = (ticks() - first, began.elapsed().as_nanos());
    u64::try_from(u128::from(ticks) * 1_000_000 / ns.max(1)).ok()
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc_khz() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::emulator::Timed;

    #[test]
    fn a_computer_too_small_is_said() {
        let stop = AtomicBool::new(false);
        let wish = Wish {
            pcpus: 1025,
            load: false,
            lab_dir: None,
            emulator: Timed::default(),
            stop: &stop,
        };
        let e = Threads::new(&wish).err().unwrap();
        assert!(e.downcast_ref::<Cannot>().is_some() && e.to_string().contains("1025 CPUs"), "{e}");
    }
}
