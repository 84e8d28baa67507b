// SPDX-License-Identifier: MIT OR Apache-2.0
//! VMs whose vCPUs' threads are scheduled by Xen's Credit, with ASMan's coscheduling or without: what
//! the module's turns are compared with. The scheduler is a program of its own beside this one
//! (crates/scx): only it needs libbpf.

use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use unspin_policy::credit;
use unspin_scenario::plan::{Coscheduling, CoschedulingMechanism, Run};

use crate::cgroup::Cpus;
use crate::Error;

const PROGRAM: &str = "unspin-scx";
/// What it says when the threads are its.
const READY: &str = "ready";
/// Of cgroups; Credit's own weights have no unit.
const WEIGHT: u32 = 100;

/// The scheduler of a run's VMs. Dropped, it ends, and every vCPU's thread is what it was.
pub(crate) struct Credit {
    child: Child,
    words: BufReader<ChildStdout>,
}

impl Credit {
    /// Gives it the vCPUs' threads of each VM; `None` where the arm asks for no such scheduler.
    pub(crate) fn start(run: &Run, vms: &[Vec<i32>], cpus: Cpus) -> Result<Option<Credit>, Error> {
        if run.arm.coscheduling_mechanism != CoschedulingMechanism::SchedExt {
            return Ok(None);
        }
        let program = beside()?;
        let mut command = Command::new(&program);
        command.args(arguments(run, vms, cpus));
        Credit::of(command).map(Some)
    }

    fn of(mut command: Command) -> Result<Credit, Error> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => failed(format!(
                "{program} is not there; make build makes it (cargo build --release -p unspin-scx)"
            )),
            _ => failed(format!("{program}: {e}")),
        })?;
        let words = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut credit = Credit { child, words };
        let mut line = String::new();
        let read = credit.words.read_line(&mut line);
        match (read, line.trim_end()) {
            (Ok(_), READY) => Ok(credit),
            _ => Err(credit.why()),
        }
    }

    /// Ends it, and says what it did; an error where the kernel had ended it meanwhile.
    pub(crate) fn end(mut self) -> Result<String, Error> {
        drop(self.child.stdin.take());
        let mut said = String::new();
        let read = self.words.read_to_string(&mut said);
        match (read, self.child.wait()) {
            (Ok(_), Ok(status)) if status.success() => Ok(said.trim_end().to_string()),
            _ => Err(self.why()),
        }
    }

    /// Its last words, now that it ends.
    fn why(&mut self) -> Error {
        drop(self.child.stdin.take());
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut text);
        }
        let status = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
        match text.trim_end() {
            "" => failed(format!("{PROGRAM} said nothing and ended: {status}")),
            text => failed(text.to_string()),
        }
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn beside() -> Result<PathBuf, Error> {
    let this =
        std::env::current_exe().map_err(|e| failed(format!("where this program is: {e}")))?;
    Ok(this.with_file_name(PROGRAM))
}

fn arguments(run: &Run, vms: &[Vec<i32>], cpus: Cpus) -> Vec<String> {
    let gang = match run.arm.coscheduling {
        Coscheduling::Con => "con",
        Coscheduling::Vcrd => "vcrd",
        _ => "none",
    };
    let slot_us = run.arm.turn_us.unwrap_or(credit::Params::default().slot_us);
    let counts = [cpus.capped.into(), slot_us.into(), cpus.count.into(), run.seed];
    let counts = counts.map(|count: u64| count.to_string());
    let vms = vms.iter().enumerate().map(|(vm, tids)| {
        let weight = run.weights.get(vm).copied().unwrap_or(WEIGHT);
        let tids: Vec<String> = tids.iter().map(i32::to_string).collect();
        format!("{weight}:{}:{}", u32::from(run.gangs(vm as u32)), tids.join(","))
    });
    std::iter::once(gang.to_string()).chain(counts).chain(vms).collect()
}

fn failed(what: String) -> Error {
    Error::NoSchedExt { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Credit, String> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Credit::of(command).map_err(|e| e.to_string())
    }

    #[test]
    fn it_is_asked_for_what_the_arm_is() {
        let mut run = Run { seed: 7, spin_intensive: true, ..Run::new(vec![], 2, 2) };
        let tids = [vec![11, 12], vec![13]];
        let cpus = Cpus { count: 4, capped: false };
        let words = |run: &Run, cpus| arguments(run, &tids, cpus).join(" ");
        assert_eq!(words(&run, cpus), "none 0 10000 4 7 100:1:11,12 100:1:13");
        run.arm.coscheduling = Coscheduling::Con;
        run.arm.turn_us = Some(6000);
        run.weights = vec![1, 300];
        run.spin_intensive = false;
        let capped = Cpus { capped: true, ..cpus };
        assert_eq!(words(&run, capped), "con 1 6000 4 7 1:0:11,12 300:0:13");
        run.arm.coscheduling = Coscheduling::Vcrd;
        assert!(words(&run, cpus).starts_with("vcrd "));
        assert!(Credit::start(&run, &tids, cpus).unwrap().is_none());
    }

    #[test]
    fn it_runs_until_it_is_told_to_end() {
        let credit = shell("echo ready; cat; echo did much").unwrap();
        assert_eq!(credit.end().unwrap(), "did much");
        drop(shell("echo ready; cat").unwrap());
    }

    #[test]
    fn what_it_says_of_a_failure_is_said() {
        let refused = shell("echo 'no sched_ext here' >&2; exit 1").err().unwrap();
        assert!(
            refused.contains("sched-ext") && refused.contains("no sched_ext here"),
            "{refused}"
        );
        let silent = shell("exit 3").err().unwrap();
        assert!(silent.contains("exit status: 3"), "{silent}");
        let ejected = shell("echo ready; cat; echo 'a task stalled' >&2; exit 1").unwrap().end();
        assert!(ejected.unwrap_err().to_string().contains("a task stalled"));
        let missing = Credit::of(Command::new("/nowhere/unspin-scx")).err().unwrap().to_string();
        assert!(
            missing.contains("/nowhere/unspin-scx") && missing.contains("cargo build"),
            "{missing}"
        );
    }
}
