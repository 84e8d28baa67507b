// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin diagnose`: how much time VMs lose, to which causes, and advice.

mod ab;
pub(super) mod show;

use crate::out;
use crate::progress::Passing;
use crate::span::{seconds, stopped_by_signals, wait};
use crate::sysfs::root;
use crate::vms;
use crate::watch::facts::{Facts, Places};
use crate::watch::{cannot, Running, SETTLE};
use anyhow::bail;
use show::Document;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use unspin_host::{place, Host, VmProcess};
use unspin_probe::{Probe, Thread};

/// How long it watches unless it is told.
const TIME: Duration = Duration::from_secs(10);

const HELP: &str = "\
A VM loses time to 6 causes: contention (a vCPU is runnable, and another task has its CPU), spin-switch \
(pause-loop exits), idle-switch (sleep and wake-up), ipi (interrupts), user-spin (spinning in user \
space) and cache. Each is shown in seconds per second, and as a share of the wall time of all vCPUs. A \
share is measured, estimated, or unknown; unknown is not 0.

BPF programs in the host kernel collect the times. They change nothing, and nothing is installed in the \
guest. The module is optional; if it is loaded, its counts are used. Requires root.

--ab runs an experiment, and changes a setting: it switches a running VM between A (as it is) and B in \
windows of --seconds (ABBA ABBA …), and compares them. Each window is compared with the neighbouring \
window of the other arm. Differences have a 95 % confidence interval. Each change is first recorded in \
/run/unspin/journal. It is restored at the end, on an error or a signal, and by a guard process if this \
one is killed or hangs. If both are killed, the next unspin that uses the journal restores it, or \
--put-back does.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The VM: its name or UUID in QEMU or libvirt, its process id, or PID-N from `unspin status`. If a
    /// name looks like an id, write name:NAME or pid:ID. Default: all VMs.
    #[arg(value_name = "VM")]
    vm: Option<OsString>,
    /// How long to watch, 0.1 to 3600 [default: 10]. With --ab: the length of a window [default: 5].
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Print JSON, with all values.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ab: ab::Args,
    #[arg(long, hide = true, default_value_os_t = root())]
    sysfs: PathBuf,
    #[arg(long, hide = true, default_value_os_t = place::proc())]
    proc: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.ab.put_back {
        return args.ab.put_back(&args.proc);
    }
    match (args.ab.cause(), &args.vm) {
        (Some(cause), Some(vm)) => {
            let (seconds, json) = (args.seconds, args.json);
            let (sysfs, proc) = (&args.sysfs, &args.proc);
            args.ab.run(cause, &ab::Asking { vm, seconds, json, sysfs, proc })
        }
        _ => watch(args),
    }
}

/// Watches, and changes nothing.
fn watch(args: &Args) -> anyhow::Result<()> {
    let time = args.seconds.unwrap_or(TIME);
    let stop = stopped_by_signals()?;
    let host = Host::at(&args.proc);
    let mut probe = Probe::load(args.sysfs.exists()).map_err(cannot)?;
    let all = vms::processes(&host)?;
    let chosen = match &args.vm {
        Some(given) => vec![vms::find_process(all.clone(), &host, given)?],
        None if all.is_empty() => bail!("no VM runs on this host"),
        None => all.clone(),
    };
    // The other VMs are watched too: the selected ones may wait for their vCPUs.
    let running = |vm: &VmProcess| Running { process: vm.clone(), threads: host.threads(vm.pid) };
    let threads: BTreeSet<Thread> =
        all.iter().flat_map(|vm| running(vm).watched().collect::<Vec<_>>()).collect();
    probe.watch(&threads).map_err(cannot)?;
    wait(SETTLE, &stop, &mut |_| {})?;
    let places = Places { sysfs: &args.sysfs, host: &host };
    let facts = || Facts::read(places, &chosen);
    let (before, facts_before) = (probe.read().map_err(cannot)?, facts());
    let mut passing = Passing::new(time, "watching vCPUs");
    wait(time, &stop, &mut |passed| passing.at(passed))?;
    let (after, facts) = (probe.read().map_err(cannot)?, facts());
    let chosen: Vec<Running> = chosen.iter().map(running).collect();
    let mut watched = Vec::new();
    for vm in &chosen {
        match vm.between(&before, &after) {
            Some(vcpus) => watched.push(vcpus),
            None => {
                let title = show::title(&vm.process);
                say!("unspin: {title} ended, or had no vCPU, during the measurement");
            }
        }
    }
    let document = Document::new(&watched, &facts_before, &facts);
    match args.json {
        true => out::json(&document),
        false => out::print(&document.text()),
    }
}
