// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab model --record VM`: a profile of a running VM, from what `unspin diagnose` counts. That is a
//! program of its own, so that this one needs neither libbpf nor a compiler for BPF.

use crate::exit::{Cannot, Told};
use crate::{out, vms};
use anyhow::{bail, Context};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use unspin_cli::seconds::seconds;
use unspin_diagnosis::State;
use unspin_host::{place, Host, VmProcess};
use unspin_model::{Counts, OfVcpu};
use unspin_text::{printable, shown};

/// The program that counts.
const COUNTER: &str = "unspin";
/// Of four VMs, each with a vCPU per core (4.3.2).
const SHARE: f64 = 0.25;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write the profile of this running VM: any of its names, as for `unspin diagnose`.
    #[arg(long = "record", id = "record", value_name = "VM")]
    #[arg(conflicts_with_all = ["profiles", "simulate", "matched", "seed", "json"])]
    vm: Option<OsString>,
    /// Seconds to record, from 0.1 to 3600.
    #[arg(long = "for", value_name = "SECONDS", requires = "record", conflicts_with = "profiles")]
    #[arg(default_value = "10", value_parser = seconds)]
    seconds: Duration,
    /// File for the recorded profile [default: standard output].
    #[arg(short = 'o', long = "output", value_name = "FILE", requires = "record")]
    #[arg(conflicts_with = "profiles")]
    output: Option<PathBuf>,
}

impl Args {
    pub fn is_asked(&self) -> bool {
        self.vm.is_some()
    }

    pub fn run(&self) -> anyhow::Result<()> {
        let given = self.vm.as_deref().context("no VM is given")?;
        let host = Host::at(&place::proc());
        // A wrong name is an error on any computer, even if that cannot watch vCPUs.
        let vm = vms::find_process(vms::processes(&host)?, &host, given)?;
        let counted = counted(&vm, self.seconds.as_secs_f64())?;
        let recorded = counted.counts()?.profile(&printable(vm.title()), SHARE);
        let recorded = recorded.with_context(|| format!("no profile of VM {}", vm.title()))?;
        let title = printable(vm.title());
        let source = format!("Recorded from VM {title} for {:.1} s.", counted.window_s);
        let text = recorded.toml(&source);
        let Some(file) = &self.output else { return out::print(&text) };
        std::fs::write(file, text).with_context(|| format!("cannot write {}", shown(file)))?;
        let lines: String = recorded.lines().into_iter().map(|line| line + "\n").collect();
        out::print(&format!("{lines}The profile is in {0}: unspin-lab model {0}\n", shown(file)))
    }
}

/// What is used of a VM in the JSON of `unspin diagnose` (docs/diagnose-reference.md).
#[derive(Debug, Deserialize)]
struct Counted {
    window_s: f64,
    vcpus: usize,
    vcpu: Vec<Vcpu>,
    wanting_s: Option<Vec<f64>>,
    causes: Vec<Cause>,
}

#[derive(Debug, Deserialize)]
struct Vcpu {
    states: Option<BTreeMap<String, f64>>,
    exits: BTreeMap<String, u64>,
    wakes: u64,
}

#[derive(Debug, Deserialize)]
struct Cause {
    cause: String,
    lost_s_per_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Document {
    vms: Vec<Counted>,
}

/// Counts for `seconds`, by the `unspin` beside this program, or else by that in PATH.
fn counted(vm: &VmProcess, seconds: f64) -> anyhow::Result<Counted> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let beside = own.with_file_name(COUNTER);
    let program = if beside.is_file() { beside.as_path() } else { Path::new(COUNTER) };
    let mut command = Command::new(program);
    command.args(["diagnose", "--json", "--seconds", &seconds.to_string()]);
    command.arg(format!("pid:{}", vm.pid)).stdin(Stdio::null()).stderr(Stdio::inherit());
    let done = match command.output() {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let text = "a profile needs the counts of unspin diagnose, and unspin is neither beside unspin-lab nor \
                        in PATH: install the package unspin";
            return Err(Cannot(text.into()).into());
        }
        done => done.with_context(|| format!("cannot start {}", shown(program)))?,
    };
    if !done.status.success() {
        // It has said why.
        let code = done.status.code().and_then(|code| u8::try_from(code).ok());
        return Err(Told(code.unwrap_or(crate::exit::FAILED)).into());
    }
    let document: Document = serde_json::from_slice(&done.stdout).with_context(|| {
        format!("{} has another version, and its JSON has another format: install the same version of both", shown(program))
    })?;
    match document.vms.into_iter().next() {
        Some(counted) => Ok(counted),
        None => bail!("VM {} ended while it was recorded", vm.title()),
    }
}

impl Counted {
    fn counts(&self) -> anyhow::Result<Counts> {
        let ns = |s: f64| (s.max(0.0) * 1e9) as u64;
        let spun = |name: &str| {
            let of = self.causes.iter().find(|cause| cause.cause == name)?;
            Some(ns(of.lost_s_per_s? * self.window_s))
        };
        let is_seen = self.vcpu.len() == self.vcpus && self.vcpu.iter().all(|v| v.states.is_some());
        let Some(wanting) = self.wanting_s.as_ref().filter(|_| is_seen) else {
            let text = "how many vCPUs wanted a CPU at the same time is unknown: this kernel does not count \
                        it, or the thread of a vCPU is unknown or never ran";
            return Err(Cannot(text.into()).into());
        };
        Ok(Counts {
            wanting_ns: wanting.iter().map(|s| ns(*s)).collect(),
            vcpus: self.vcpu.iter().map(|vcpu| vcpu.counts(&ns)).collect(),
            ple_ns: spun("spin-switch"),
            user_spin_ns: spun("user-spin"),
        })
    }
}

impl Vcpu {
    fn counts(&self, ns: &dyn Fn(f64) -> u64) -> OfVcpu {
        let sum = |is: &dyn Fn(State) -> bool| -> u64 {
            let states = self.states.iter().flatten();
            let known = states.filter_map(|(name, s)| Some((State::of_name(name)?, s)));
            known.filter(|(state, _)| is(*state)).map(|(_, s)| ns(*s)).sum()
        };
        OfVcpu {
            // While it polls after HLT it does not want a CPU.
            on_cpu_ns: sum(&|state| state.is_on_cpu() && state != State::Poll),
            ready_ns: sum(&|state| state.is_ready() || state == State::Throttled),
            halts: match self.exits.keys().all(|reason| reason == State::ExitOther.name()) {
                true => self.wakes, // This host hides the reasons of exits.
                false => self.exits.get(State::ExitHalt.name()).copied().unwrap_or(0),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `unspin diagnose --json` prints it, without what is not used.
    fn document(wanting: &str) -> Counted {
        let text = format!(
            r#"{{"schema":1,"vms":[{{"name":"web1","vcpus":2,"window_s":2.0,"wanting_s":{wanting},"vcpu":[
            {{"index":0,"states":{{"guest":1.75,"exit:halt":0.25}},"exits":{{"exit:halt":500}},"wakes":3}},
            {{"index":1,"states":{{"guest":0.5,"poll":0.25,"ready:vm":0.25,"halted":1.0}},
            "exits":{{"exit:other":7}},"wakes":9}}],
            "causes":[{{"cause":"spin-switch","lost_s_per_s":0.125}},{{"cause":"user-spin","lost_s_per_s":null}}]
            }}]}}"#
        );
        serde_json::from_str::<Document>(&text).unwrap().vms.remove(0)
    }

    #[test]
    fn a_diagnosis_has_what_a_profile_needs() {
        let counts = document("[0.0,1.25,0.75]").counts().unwrap();
        let second = 1_000_000_000;
        assert_eq!(counts.wanting_ns, [0, second / 4 * 5, second / 4 * 3]);
        assert_eq!((counts.ple_ns, counts.user_spin_ns), (Some(second / 4), None));
        let of = |on_cpu_ns, ready_ns, halts| OfVcpu { on_cpu_ns, ready_ns, halts };
        assert_eq!(counts.vcpus, [of(2 * second, 0, 500), of(second / 2, second / 4, 9)]);
        let text = counts.profile("web1", SHARE).unwrap().toml("From a test.");
        assert!(text.contains("# type 2: less parallel, blocks often\n"), "{text}");
        assert!(document("null").counts().unwrap_err().downcast_ref::<Cannot>().is_some());
    }
}
