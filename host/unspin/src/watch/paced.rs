// SPDX-License-Identifier: MIT OR Apache-2.0
//! For tests: vCPUs of VMs in /proc, each of which seems to be on a CPU for a part of the time.

use super::facts::Facts;
use super::sample::{Running, Sample, Source};
use anyhow::Context;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;
use unspin_diagnosis::State;
use unspin_host::{Host, VmProcess};
use unspin_probe::Seen;

/// The part of the time in which a vCPU is on a CPU. In the rest it waits for one, or is halted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pace {
    share: f64,
    ready: bool,
}

/// Parts for the vCPUs of each VM: `0.9r,0.3/1r`. With an `r` a vCPU is always ready. vCPUs without a
/// part are halted.
#[derive(Debug, Clone, PartialEq)]
pub struct Paces(Vec<Vec<Pace>>);

impl FromStr for Paces {
    type Err = String;

    fn from_str(text: &str) -> Result<Paces, String> {
        let pace = |text: &str| {
            let (share, ready) =
                text.strip_suffix('r').map_or((text, false), |share| (share, true));
            let share = share.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share))?;
            Some(Pace { share, ready })
        };
        let vm = |text: &str| text.split(',').map(pace).collect::<Option<Vec<Pace>>>();
        let vms = text.split('/').map(vm).collect::<Option<Vec<Vec<Pace>>>>();
        vms.map(Paces).ok_or_else(|| "SHARE[r],…/SHARE[r],…".to_string())
    }
}

pub struct Paced {
    host: Host,
    paces: Paces,
    start: Instant,
    vms: Vec<Running>,
}

impl Paced {
    pub fn new(host: Host, paces: Paces) -> Paced {
        Paced { host, paces, start: Instant::now(), vms: Vec::new() }
    }
}

impl Source for Paced {
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
        let ns = (at - self.start).as_nanos() as u64;
        let mut seen = BTreeMap::new();
        for (number, vm) in self.vms.iter().enumerate() {
            let paces = self.paces.0.get(number).into_iter().flatten();
            let halted = Pace { share: 0.0, ready: false };
            let paces = paces.copied().chain(std::iter::repeat(halted));
            for (thread, pace) in vm.watched().zip(paces) {
                let mut did = Seen { ready: pace.ready, ..Seen::default() };
                let ran = (ns as f64 * pace.share) as u64;
                did.times[State::Guest] = ran;
                let rest = if pace.ready { State::ReadyVm } else { State::Halted };
                did.times[rest] = ns - ran;
                seen.insert(thread, did);
            }
        }
        let (vms, facts) = (self.vms.clone(), Arc::new(Facts::of_host()));
        Ok(Sample { at, vms, seen, facts, takers: BTreeMap::new(), left_out: 0 })
    }
}
