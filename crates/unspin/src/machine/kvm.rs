// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machine `kvm`: the agent runs the plan on this host, with the module loaded.

use super::detect::Found;
use super::{Job, Machine, Sink};
use crate::exit::{Cannot, Usage};
use anyhow::{bail, Context};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unspin_scenario::result::Record;

pub struct Kvm {
    release: String,
}

impl Kvm {
    pub fn new(_found: &Found) -> anyhow::Result<Kvm> {
        if !Path::new("/sys/module/unspin").is_dir() {
            return Err(Cannot(
                "machine kvm: the module is not loaded (sudo unspin load)".to_string(),
            )
            .into());
        }
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .context("cannot read the kernel's release")?;
        Ok(Kvm { release: release.trim().to_string() })
    }
}

impl Machine for Kvm {
    fn name(&self) -> &'static str {
        "kvm"
    }

    fn default_kernels(&self) -> Vec<String> {
        vec![self.release.clone()]
    }

    fn boots(&self) -> bool {
        false
    }

    fn check_kernel(&self, name: &str) -> anyhow::Result<()> {
        if name == self.release {
            return Ok(());
        }
        Err(Usage(format!("machine kvm runs on this host's kernel {}, not {name}", self.release))
            .into())
    }

    fn run(&self, job: &Job, sink: &mut Sink) -> anyhow::Result<()> {
        (job.say)("starting the agent");
        let file = job.dir.join("plan.json");
        unspin_report::write_atomic(&file, &serde_json::to_vec(job.plan)?)?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut agent = Command::new(program)
            .arg("agent")
            .arg(&file)
            .args(["--out", "stdout"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the agent")?;
        let read = read_records(&mut agent, job.stop, sink);
        if read.is_err() {
            terminate(&agent);
        }
        let status = agent.wait().context("cannot wait for the agent")?;
        let ended = read?;
        if !ended && !job.stop.load(Ordering::Relaxed) {
            bail!("the agent ended before its plan ({status})");
        }
        Ok(())
    }
}

/// Passes the agent's records on; whether the last was End.
fn read_records(agent: &mut Child, stop: &AtomicBool, sink: &mut Sink) -> anyhow::Result<bool> {
    let Some(stdout) = agent.stdout.take() else {
        bail!("the agent has no output");
    };
    let done = AtomicBool::new(false);
    let agent = &*agent;
    std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    terminate(agent);
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let read = pass_on(BufReader::new(stdout), sink);
        done.store(true, Ordering::Relaxed);
        read
    })
}

fn pass_on(lines: impl BufRead, sink: &mut Sink) -> anyhow::Result<bool> {
    let mut ended = false;
    for line in lines.lines() {
        let line = line.context("cannot read from the agent")?;
        let record = serde_json::from_str(&line)
            .with_context(|| format!("the agent wrote what is no record: {line:.200}"))?;
        ended = matches!(record, Record::End { .. });
        sink(record)?;
    }
    Ok(ended)
}

/// Asks the agent to end its VMs and itself.
fn terminate(agent: &Child) {
    if let Ok(pid) = libc::pid_t::try_from(agent.id()) {
        // SAFETY: kill only sends a signal; the child is not waited for yet, so the pid is its.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}
