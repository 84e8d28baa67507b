// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples of the VMs of this host, counted by BPF programs in its kernel.

use super::facts::{Detail, Facts, Places};
use super::sample::{Running, Sample, Source};
use super::scan::Scan;
use crate::exit::Cannot;
use anyhow::Context;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use unspin_host::{Host, VmProcess};
use unspin_probe::{Error, Probe, Thread, VCPUS_MAX, VMS_MAX};

pub struct Kernel {
    host: Host,
    sysfs: PathBuf,
    detail: Detail,
    probe: Probe,
    scan: Scan,
    facts: Arc<Facts>,
    /// The process of the VM that is watched even if there is no room for others.
    preferred: Option<u32>,
    /// Number of VMs over the limit.
    left_out: usize,
}

impl Kernel {
    /// Starts without watching anything. `sysfs`: the module's directory; `detail`: what samples
    /// contain.
    pub fn new(host: Host, sysfs: &Path, detail: Detail) -> anyhow::Result<Kernel> {
        in_the_hosts_namespace()?;
        let may_park = sysfs.exists();
        let probe = match detail {
            Detail::All => Probe::load_detailed(may_park),
            Detail::Takers => Probe::load_with_takers(may_park),
            Detail::Causes | Detail::Module => Probe::load(may_park),
        };
        let probe = probe.map_err(cannot)?;
        Ok(Self::with(probe, host, sysfs, detail))
    }

    /// The same with the states that [`Probe::load_brief`] distinguishes.
    pub fn brief(host: Host, sysfs: &Path, detail: Detail) -> anyhow::Result<Kernel> {
        in_the_hosts_namespace()?;
        Ok(Self::with(Probe::load_brief().map_err(cannot)?, host, sysfs, detail))
    }

    fn with(probe: Probe, host: Host, sysfs: &Path, detail: Detail) -> Kernel {
        let (scan, facts) = (Scan::default(), Arc::new(Facts::of_host()));
        let sysfs = sysfs.to_path_buf();
        Kernel { host, sysfs, detail, probe, scan, facts, preferred: None, left_out: 0 }
    }

    /// From now on, records which vCPU woke which, for this long.
    pub fn keep_wakers(&mut self, time: Duration) {
        self.probe.keep_wakers(time);
    }
}

/// The kernel compares thread ids of the first PID namespace, so this process must be in it.
fn in_the_hosts_namespace() -> anyhow::Result<()> {
    /// Its inode, PROC_PID_INIT_INO in the kernel.
    const FIRST: &str = "pid:[4026531836]";
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(own) if own.as_os_str() != FIRST => Err(Cannot(
            "this process has a PID namespace of its own, where threads have other ids than the kernel \
             counts by: run it in the host's (in containers: hostPID, or --pid=host)"
                .into(),
        )
        .into()),
        _ => Ok(()),
    }
}

impl Source for Kernel {
    fn look(&mut self) -> anyhow::Result<()> {
        self.scan.look(&self.host, Instant::now()).context("cannot look for VMs")?;
        let is_preferred = |vm: &&Running| Some(vm.process.pid) == self.preferred;
        let others = self.scan.vms().filter(|vm| !is_preferred(vm));
        let vms = self.scan.vms().filter(is_preferred).chain(others);
        let (threads, left_out) = fitting(vms, VMS_MAX as usize, VCPUS_MAX as usize - 1);
        self.left_out = left_out;
        self.probe.may_park(self.sysfs.exists());
        self.probe.watch(&threads).map_err(cannot)
    }

    fn prefer(&mut self, pid: u32) {
        self.preferred = Some(pid);
    }

    fn sample(&mut self) -> anyhow::Result<Sample> {
        self.look()?;
        let processes: Vec<VmProcess> = self.scan.vms().map(|vm| vm.process.clone()).collect();
        let places = Places { sysfs: &self.sysfs, host: &self.host };
        let mut facts = self.facts.renewed(places, &processes, self.detail);
        if self.detail == Detail::All {
            facts = facts.with_seen(self.probe.read_vms().map_err(cannot)?);
        }
        self.facts = Arc::new(facts);
        self.again()
    }

    fn again(&mut self) -> anyhow::Result<Sample> {
        let at = Instant::now();
        let mut seen = self.probe.read().map_err(cannot)?;
        // If it is unknown which threads are vCPUs, other threads count as siblings.
        for vm in self.scan.vms().filter(|vm| !vm.process.is_all_known()) {
            for thread in vm.watched() {
                if let Some(seen) = seen.get_mut(&thread) {
                    seen.costop = None;
                }
            }
        }
        let takers = self.probe.takers().map_err(cannot)?;
        let vms: Vec<Running> = self.scan.vms().cloned().collect();
        let facts = Arc::clone(&self.facts);
        Ok(Sample { at, vms, seen, facts, takers, left_out: self.left_out })
    }
}

/// The threads to watch, of as many VMs as fit, and the number of VMs that do not fit. VMs with low
/// process ids come first; these have mostly run longest.
fn fitting<'a>(
    vms: impl Iterator<Item = &'a Running>,
    vms_max: usize,
    threads_max: usize,
) -> (BTreeSet<Thread>, usize) {
    let (mut threads, mut taken, mut left_out) = (BTreeSet::new(), 0, 0);
    for vm in vms {
        let of_vm: Vec<Thread> = vm.watched().collect();
        if taken == vms_max || threads.len() + of_vm.len() > threads_max {
            left_out += 1;
        } else {
            taken += 1;
            threads.extend(of_vm);
        }
    }
    (threads, left_out)
}

/// A missing capability of this computer is not a failure of the command.
pub fn cannot(e: Error) -> anyhow::Error {
    match e.is_of_this_computer() {
        true => Cannot(e.to_string()).into(),
        false => e.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Synthetic;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_has_no_room_is_counted(
            count in 0..20usize,
            vcpus in 1..10u32,
            vms_max in 0..20usize,
            threads_max in 0..100usize,
        ) {
            let vms = Synthetic::new(count, vcpus).vms();
            let (threads, left_out) = fitting(vms.iter(), vms_max, threads_max);
            prop_assert!(threads.len() <= threads_max && count - left_out <= vms_max);
            prop_assert_eq!(threads.len(), (count - left_out) * vcpus as usize);
            let is_full = count - left_out == vms_max
                || threads.len() + vcpus as usize > threads_max;
            prop_assert!(left_out == 0 || is_full);
        }
    }
}
