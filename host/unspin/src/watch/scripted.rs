// SPDX-License-Identifier: MIT OR Apache-2.0
//! For tests: given states of VMs in /proc. They are one mix of states while the settings are those
//! of the first look, and another mix otherwise.

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

type Mix = Vec<(State, f64)>;

/// Shares of the wall time in A and in B: `exit:pause=0.3,ready:vm=0.01/exit:pause=0`. The rest is `guest`.
#[derive(Debug, Clone)]
pub struct Mixes {
    a: Mix,
    b: Mix,
}

impl FromStr for Mixes {
    type Err = String;

    fn from_str(text: &str) -> Result<Mixes, String> {
        let of = |part: &str| {
            let (name, share) = part.split_once('=')?;
            let share = share.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share))?;
            Some((State::of_name(name)?, share))
        };
        let mix = |text: &str| text.split(',').map(of).collect::<Option<Mix>>();
        let both = text.split_once('/').and_then(|(a, b)| Some(Mixes { a: mix(a)?, b: mix(b)? }));
        both.ok_or_else(|| "STATE=SHARE,…/STATE=SHARE,…".to_string())
    }
}

pub struct Scripted {
    host: Host,
    sysfs: PathBuf,
    sys: PathBuf,
    mixes: Mixes,
    /// The settings at the first look.
    first: Option<String>,
    at: Instant,
    samples: u32,
    seen: BTreeMap<Thread, Seen>,
}

impl Scripted {
    pub fn new(host: Host, sysfs: &Path, sys: &Path, mixes: Mixes) -> Scripted {
        let (sysfs, sys) = (sysfs.to_path_buf(), sys.to_path_buf());
        let (first, at, seen) = (None, Instant::now(), BTreeMap::new());
        Scripted { host, sysfs, sys, mixes, first, at, samples: 0, seen }
    }

    /// All settings that experiments switch.
    fn settings(&self, vms: &[VmProcess]) -> String {
        let read = |path: PathBuf| read_kernel_text(path).unwrap_or_default();
        let mut text = read(self.sys.join("module/kvm/parameters/halt_poll_ns"));
        for entry in fs::read_dir(self.sysfs.join("vms")).into_iter().flatten().flatten() {
            text += &read(entry.path().join("window_min_cycles"));
        }
        for vcpu in vms.iter().flat_map(|vm| &vm.vcpus) {
            text += &format!("{:?}", self.host.allowed_cpus(vcpu.tid));
        }
        text
    }
}

impl Source for Scripted {
    fn look(&mut self) -> anyhow::Result<()> {
        self.sample().map(drop)
    }

    fn sample(&mut self) -> anyhow::Result<Sample> {
        let processes = self.host.vm_processes().context("cannot look for VMs")?;
        let settings = self.settings(&processes);
        let is_a = *self.first.get_or_insert_with(|| settings.clone()) == settings;
        let mix = if is_a { &self.mixes.a } else { &self.mixes.b };
        let now = Instant::now();
        let ns = (now - self.at).as_nanos() as u64;
        self.at = now;
        self.samples += 1;
        // Phases differ a little, as in reality.
        let differs = 1.0 + 0.01 * f64::from(self.samples % 7);
        let running = |process: &VmProcess| {
            let threads = self.host.threads(process.pid);
            Running { process: process.clone(), threads }
        };
        let vms: Vec<Running> = processes.iter().map(running).collect();
        for thread in vms.iter().flat_map(Running::watched) {
            let seen = self.seen.entry(thread).or_default();
            let mut left = ns;
            for (state, share) in mix {
                let time = ((ns as f64 * share * differs) as u64).min(left);
                left -= time;
                seen.times[*state] += time;
                seen.exits[*state] += if state.is_exit() { time / EXIT_NS } else { 0 };
            }
            seen.times[State::Guest] += left;
        }
        let places = Places { sysfs: &self.sysfs, host: &self.host };
        let facts = Facts::of_host().renewed(places, &processes, Detail::Causes);
        let (seen, facts) = (self.seen.clone(), Arc::new(facts));
        Ok(Sample { at: self.at, vms, seen, facts, takers: BTreeMap::new(), left_out: 0 })
    }
}
