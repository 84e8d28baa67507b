// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module's tracepoints, recorded in a tracing instance of this process.

use std::fs;
use std::path::{Path, PathBuf};

use unspin_scenario::plan::Run;
use unspin_scenario::result::EpochSample;

use crate::Error;

const INSTANCE: &str = "/sys/kernel/tracing/instances/unspin";
/// Tracepoints of the module.
const EPOCH: &str = "unspin_epoch";
const PICK: &str = "unspin_pick";
const EPOCH_BUFFER_KB: u32 = 256;
const PICK_BUFFER_KB: u32 = 4096;

/// Tracing for one run. Dropping this removes the instance.
pub(crate) struct Trace {
    dir: PathBuf,
}

impl Trace {
    /// `None` if the run requests no trace.
    pub(crate) fn start(run: &Run) -> Result<Option<Trace>, Error> {
        if !run.trace_epochs && !run.trace_picks {
            return Ok(None);
        }
        let dir = PathBuf::from(INSTANCE);
        match fs::create_dir(&dir) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Error::io(&dir, e))
            }
            _ => {}
        }
        let trace = Trace { dir };
        let buffer_kb = if run.trace_picks { PICK_BUFFER_KB } else { EPOCH_BUFFER_KB };
        trace.write("buffer_size_kb", &buffer_kb.to_string())?;
        // The clock of the agent's own times.
        trace.write("trace_clock", "mono")?;
        trace.write("trace", "")?;
        let enable = |wanted: bool| if wanted { "1" } else { "0" };
        for (event, wanted) in [(EPOCH, run.trace_epochs), (PICK, run.trace_picks)] {
            trace.write(&format!("events/unspin/{event}/enable"), enable(wanted))?;
        }
        trace.write("tracing_on", "1")?;
        Ok(Some(trace))
    }

    pub(crate) fn stop(&self) -> Result<(), Error> {
        self.write("tracing_on", "0")
    }

    /// Lines of the module's events, oldest first.
    pub(crate) fn lines(&self) -> Result<Vec<String>, Error> {
        let path = self.dir.join("trace");
        let text = fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
        Ok(text.lines().filter(|l| !l.starts_with('#')).map(|l| l.trim().to_string()).collect())
    }

    /// Number of events that did not fit into the buffers.
    pub(crate) fn lost(&self) -> u64 {
        let Ok(cpus) = fs::read_dir(self.dir.join("per_cpu")) else { return 0 };
        cpus.flatten()
            .filter_map(|cpu| fs::read_to_string(cpu.path().join("stats")).ok())
            .flat_map(|stats| {
                stats
                    .lines()
                    .filter_map(|line| line.split_once(':'))
                    .filter(|(name, _)| matches!(*name, "overrun" | "dropped events"))
                    .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
                    .collect::<Vec<_>>()
            })
            .sum()
    }

    fn write(&self, file: &str, value: &str) -> Result<(), Error> {
        let path = self.dir.join(file);
        fs::write(&path, value).map_err(|e| Error::io(&path, e))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        for event in [EPOCH, PICK] {
            let _ = self.write(&format!("events/unspin/{event}/enable"), "0");
        }
        if let Err(error) = fs::remove_dir(Path::new(INSTANCE)) {
            eprintln!("agent: {INSTANCE} stays: {error}");
        }
    }
}

/// Finished epochs in `lines`, of the VMs with the process ids `pids`; times are relative to
/// `start_ns`.
pub(crate) fn epochs(lines: &[String], pids: &[u32], start_ns: u64) -> Vec<EpochSample> {
    lines.iter().filter_map(|line| epoch(line, pids, start_ns)).collect()
}

/// `task-pid [cpu] flags seconds.micros: unspin_epoch: vm=PID-N … epoch=… window=… ppm=…`
fn epoch(line: &str, pids: &[u32], start_ns: u64) -> Option<EpochSample> {
    let (head, fields) = line.split_once(": unspin_epoch: ")?;
    let field = |name: &str| {
        fields.split_whitespace().find_map(|f| f.strip_prefix(name)?.strip_prefix('='))
    };
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    let (pid, _) = field("vm")?.split_once('-')?;
    let pid: u32 = pid.parse().ok()?;
    let vm = pids.iter().position(|&p| p == pid)? as u32;
    let (seconds, fraction) = head.split_whitespace().last()?.split_once('.')?;
    let at_ns = seconds.parse::<u64>().ok()? * 1_000_000_000 + fraction.parse::<u64>().ok()? * 1000;
    Some(EpochSample {
        vm,
        at_ns: at_ns.saturating_sub(start_ns),
        epoch: number("epoch")?,
        window_cycles: number("window")?,
        inefficiency_ppm: number("ppm")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_lines_are_read() {
        let line = "CPU 0/KVM-431 [002] d..2. 12.345678: unspin_epoch: vm=430-0 gen=3 epoch=17 \
                    adapts=1 phase=2 window=9216 desired=8192 exits=1001 spin=9 switch=8 cpu=7 \
                    ppm=4711 next=8192 init=8192";
        let lines = [line.to_string(), "CPU 0/KVM-1 [0] 1.0: unspin_pick: vm=430-0".into()];
        let got = epochs(&lines, &[99, 430], 12_000_000_000);
        assert_eq!(
            got,
            [EpochSample {
                vm: 1,
                at_ns: 345_678_000,
                epoch: 17,
                window_cycles: 9216,
                inefficiency_ppm: 4711
            }]
        );
        assert!(epochs(&lines, &[99], 0).is_empty());
    }
}
