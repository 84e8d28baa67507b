// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin diagnose`: what VMs lose, on what, and what would help.

mod facts;
mod show;

use crate::exit::Cannot;
use crate::out;
use crate::progress::Passing;
use crate::sysfs::ROOT;
use crate::vms;
use anyhow::{bail, Context};
use facts::Facts;
use show::{Document, Watched};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use unspin_host::{Host, VmProcess};
use unspin_probe::{Error, Probe, Seen, Thread};

const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;
/// Until every vCPU that runs has told where it is.
const SETTLE: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(50);

const HELP: &str = "\
A VM loses time to six causes: contention (a vCPU could run and somebody else has its CPU), spin-switch \
(pause-loop exits), idle-switch (going to sleep and waking up), ipi (interrupts), user-spin (spinning in \
user space) and cache. Each is shown in seconds per second, and as a share of the wall time of all vCPUs. \
A share is measured, estimated, or unknown; unknown is not 0.

BPF programs in the host's kernel count. They change nothing, and nothing is installed in the guest. The \
module need not be loaded; where it is, its counts are used. Only root may do this.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The VM: its name or UUID as QEMU and libvirt have it, its process id, or PID-N as status shows
    /// it. Where a name looks like an id: name:NAME, pid:ID. Without it, all VMs.
    #[arg(value_name = "VM")]
    vm: Option<OsString>,
    /// How long to watch, 0.1 to 3600.
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    seconds: Duration,
    /// Everything, as JSON.
    #[arg(long)]
    json: bool,
    #[arg(long, hide = true, default_value = ROOT)]
    sysfs: PathBuf,
    #[arg(long, hide = true, default_value = "/proc")]
    proc: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot take signals")?;
    }
    let host = Host::at(&args.proc);
    let mut probe = Probe::load(args.sysfs.exists()).map_err(cannot)?;
    let all = vms::processes(&host)?;
    let chosen = match &args.vm {
        Some(given) => vec![vms::find_process(all.clone(), &host, given)?],
        None if all.is_empty() => bail!("no VM runs on this host"),
        None => all.clone(),
    };
    // Those that were not asked for are who the others wait for.
    let threads: BTreeSet<Thread> = all.iter().flat_map(|vm| threads(&host, vm)).collect();
    probe.watch(&threads).map_err(cannot)?;
    wait(SETTLE, &stop, &mut |_| {})?;
    let facts = || Facts::read(&args.sysfs, &host, &chosen);
    let (before, facts_before) = (probe.read().map_err(cannot)?, facts());
    let mut passing = Passing::new(args.seconds, "watching vCPUs");
    wait(args.seconds, &stop, &mut |passed| passing.at(passed))?;
    let (after, facts) = (probe.read().map_err(cannot)?, facts());
    let mut watched = Vec::new();
    for vm in &chosen {
        match vcpus(&host, vm, &before, &after) {
            Some(vcpus) => watched.push(Watched { vm, vcpus }),
            None => {
                say!("unspin: {} ended, or made no vCPU, while it was watched", show::title(vm))
            }
        }
    }
    let document = Document::new(&watched, &facts_before, &facts);
    match args.json {
        true => out::json(&document),
        false => out::print(&document.text()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    if !SECONDS.contains(&seconds) {
        return Err(format!("allowed: {} to {}", SECONDS.start(), SECONDS.end()));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Its vCPUs; where it has not named them, all its threads, of which those count that leave a guest.
fn threads(host: &Host, vm: &VmProcess) -> Vec<Thread> {
    let tids = match vm.vcpus.is_empty() {
        false => vm.vcpus.iter().map(|vcpu| vcpu.tid).collect(),
        true => host.threads(vm.pid),
    };
    tids.into_iter().map(|tid| Thread { tid, pid: vm.pid }).collect()
}

/// What its vCPUs did between two readings, by their number. `None` where it has ended, or has no vCPU.
fn vcpus(
    host: &Host,
    vm: &VmProcess,
    before: &BTreeMap<Thread, Seen>,
    after: &BTreeMap<Thread, Seen>,
) -> Option<Vec<(u32, Seen)>> {
    let alive = host.threads(vm.pid);
    let all: Vec<(u32, Seen)> = threads(host, vm)
        .iter()
        .filter(|thread| alive.contains(&thread.tid))
        .filter_map(|thread| Some((thread.tid, after.get(thread)?.since(before.get(thread)?))))
        .collect();
    let number = |tid: u32| vm.vcpus.iter().find(|vcpu| vcpu.tid == tid).map(|vcpu| vcpu.index);
    let vcpus: Vec<(u32, Seen)> = match vm.vcpus.is_empty() {
        false => all.into_iter().filter_map(|(tid, seen)| Some((number(tid)?, seen))).collect(),
        true => {
            let leave = all.into_iter().filter(|(_, seen)| seen.exits.total() > 0);
            (0..).zip(leave.map(|(_, seen)| seen)).collect()
        }
    };
    (!vcpus.is_empty()).then_some(vcpus)
}

fn wait(time: Duration, stop: &AtomicBool, at: &mut dyn FnMut(Duration)) -> anyhow::Result<()> {
    let start = Instant::now();
    while start.elapsed() < time {
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        at(start.elapsed());
        std::thread::sleep(LOOK.min(time.saturating_sub(start.elapsed())));
    }
    Ok(())
}

/// What this computer lacks is not the same as what went wrong.
fn cannot(e: Error) -> anyhow::Error {
    match e.is_of_this_computer() {
        true => Cannot(e.to_string()).into(),
        false => e.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vms::tests::Fake;
    use unspin_diagnosis::State;

    #[test]
    fn of_threads_without_names_those_count_that_leave_a_guest() {
        let fake = Fake::new("diagnose");
        fake.vm("41-0", "web");
        let thread = |tid: u32, comm: &str| fake.write(&format!("proc/41/task/{tid}/comm"), comm);
        thread(41, "qemu-system-x86");
        thread(44, "worker");
        let host = fake.host();
        let vm = host.vm_process(41).unwrap();
        let both = threads(&host, &vm);
        let mut after: BTreeMap<Thread, Seen> =
            both.iter().map(|thread| (*thread, Seen::default())).collect();
        let before = after.clone();
        assert_eq!(vcpus(&host, &vm, &before, &after), None);
        let seen = after.get_mut(&both[1]).unwrap();
        seen.exits[State::ExitHalt] = 3;
        seen.times[State::Guest] = 5;
        let found = vcpus(&host, &vm, &before, &after).unwrap();
        assert_eq!(found, [(0, after[&both[1]].clone())]);
        thread(43, "CPU 7/KVM");
        let vm = host.vm_process(41).unwrap();
        let named = threads(&host, &vm)[0];
        after.insert(named, Seen::default());
        assert_eq!(vcpus(&host, &vm, &before, &after), None, "it was not there before");
        assert_eq!(vcpus(&host, &vm, &after, &after).unwrap()[0].0, 7);
    }

    #[test]
    fn times_are_within_bounds() {
        assert_eq!(seconds("0.1").unwrap(), Duration::from_millis(100));
        for wrong in ["0", "-1", "nan", "3600.1", "5s", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
