// SPDX-License-Identifier: MIT OR Apache-2.0
//! For tests: given states of VMs in /proc.

use super::facts::{Detail, Facts, Places};
use super::sample::{Running, Sample, Source};
use anyhow::Context;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;
use unspin_diagnosis::State;
use unspin_host::{Host, VmProcess};
use unspin_probe::{Seen, Thread};
use unspin_text::read_kernel_text;

/// Time per exit in its state, in ns.
const EXIT_NS: u64 = 5000;

/// Shares of the wall time. The rest is `guest`.
type Mix = Vec<(State, f64)>;

fn share(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share))
}

/// The mixes of A and of B: `exit:pause=0.3,ready:vm=0.01/exit:pause=0`. They are A while the settings are those of the
/// first sample.
#[derive(Debug, Clone)]
pub struct Mixes([Mix; 2]);

impl FromStr for Mixes {
    type Err = String;

    fn from_str(text: &str) -> Result<Mixes, String> {
        let of = |part: &str| {
            let (name, of) = part.split_once('=')?;
            Some((State::of_name(name)?, share(of)?))
        };
        let mix = |text: &str| text.split(',').map(of).collect::<Option<Mix>>();
        let both = text.split_once('/').and_then(|(a, b)| Some(Mixes([mix(a)?, mix(b)?])));
        both.ok_or_else(|| "STATE=SHARE,…/STATE=SHARE,…".to_string())
    }
}

/// For the vCPUs of each VM the part of the time on a CPU: `0.9r,0.3/1r`. In the rest a vCPU is halted; with an `r` it
/// waits for a CPU, and is always ready. vCPUs without a part are halted.
#[derive(Debug, Clone)]
pub struct Paces(Vec<Vec<(Mix, bool)>>);

impl FromStr for Paces {
    type Err = String;

    fn from_str(text: &str) -> Result<Paces, String> {
        let pace = |text: &str| {
            let (of, ready) = text.strip_suffix('r').map_or((text, false), |of| (of, true));
            let rest = if ready { State::ReadyVm } else { State::Halted };
            Some((vec![(rest, 1.0 - share(of)?)], ready))
        };
        let vm = |text: &str| text.split(',').map(pace).collect::<Option<Vec<(Mix, bool)>>>();
        let vms = text.split('/').map(vm).collect::<Option<Vec<_>>>();
        vms.map(Paces).ok_or_else(|| "SHARE[r],…/SHARE[r],…".to_string())
    }
}

/// What decides the states of vCPUs.
pub enum Script {
    /// `sys` and `sysfs` (the module's directory) have the settings that experiments switch.
    Arms {
        mixes: Mixes,
        sys: PathBuf,
        sysfs: PathBuf,
    },
    Paces(Paces),
}

pub struct Scripted {
    host: Host,
    script: Script,
    /// The settings at the first sample.
    first: Option<String>,
    at: Instant,
    samples: u32,
    vms: Vec<Running>,
    seen: BTreeMap<Thread, Seen>,
}

impl Scripted {
    pub fn new(host: Host, script: Script) -> Scripted {
        let (at, vms, seen) = (Instant::now(), Vec::new(), BTreeMap::new());
        Scripted { host, script, first: None, at, samples: 0, vms, seen }
    }

    fn settings(&self, sys: &Path, sysfs: &Path) -> String {
        let read = |path: PathBuf| read_kernel_text(path).unwrap_or_default();
        let mut text = read(sys.join("module/kvm/parameters/halt_poll_ns"));
        for entry in fs::read_dir(sysfs.join("vms")).into_iter().flatten().flatten() {
            text += &read(entry.path().join("window_min_cycles"));
        }
        for vcpu in self.vms.iter().flat_map(|vm| &vm.process.vcpus) {
            text += &format!("{:?}", self.host.allowed_cpus(vcpu.tid));
        }
        text
    }
}

impl Source for Scripted {
    fn look(&mut self) -> anyhow::Result<()> {
        let processes = self.host.vm_processes().context("cannot look for VMs")?;
        let running =
            |process: VmProcess| Running { threads: self.host.threads(process.pid), process };
        self.vms = processes.into_iter().map(running).collect();
        Ok(())
    }

    fn sample(&mut self) -> anyhow::Result<Sample> {
        self.look()?;
        self.again()
    }

    fn again(&mut self) -> anyhow::Result<Sample> {
        let at = Instant::now();
        let ns = (at - self.at).as_nanos() as u64;
        (self.at, self.samples) = (at, self.samples + 1);
        let (mut facts, mut is_b) = (Facts::of_host(), false);
        if let Script::Arms { sys, sysfs, .. } = &self.script {
            let settings = self.settings(sys, sysfs);
            is_b = *self.first.get_or_insert_with(|| settings.clone()) != settings;
            let all: Vec<VmProcess> = self.vms.iter().map(|vm| vm.process.clone()).collect();
            facts = facts.renewed(Places { sysfs, host: &self.host }, &all, Detail::Causes);
        }
        // Phases differ a little, as in reality.
        let differs = 1.0 + 0.01 * f64::from(self.samples % 7);
        let halted = (vec![(State::Halted, 1.0)], false);
        for (number, vm) in self.vms.iter().enumerate() {
            for (index, thread) in vm.watched().enumerate() {
                let (mix, ready, differs) = match &self.script {
                    Script::Arms { mixes, .. } => (&mixes.0[usize::from(is_b)], false, differs),
                    Script::Paces(Paces(all)) => {
                        let pace = all.get(number).and_then(|vm| vm.get(index));
                        let (mix, ready) = pace.unwrap_or(&halted);
                        (mix, *ready, 1.0)
                    }
                };
                let seen = self.seen.entry(thread).or_default();
                let mut left = ns;
                for (state, share) in mix {
                    let time = ((ns as f64 * share * differs) as u64).min(left);
                    left -= time;
                    seen.times[*state] += time;
                    seen.exits[*state] += if state.is_exit() { time / EXIT_NS } else { 0 };
                }
                seen.times[State::Guest] += left;
                seen.ready = ready;
            }
        }
        let (vms, seen, facts) = (self.vms.clone(), self.seen.clone(), Arc::new(facts));
        Ok(Sample { at, vms, seen, facts, takers: BTreeMap::new(), left_out: 0 })
    }
}
