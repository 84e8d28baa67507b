// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin diagnose`: how much time VMs lose, to which causes, and advice.

mod ab;
mod cost;
pub(super) mod show;

use crate::exit::Usage;
use crate::out;
use crate::progress::Passing;
use crate::span::{seconds, stopped_by_signals, wait};
use crate::sysfs::root;
use crate::vms;
use crate::watch::facts::{Facts, Places};
use crate::watch::{cannot, fitting, Running, SETTLE};
use anyhow::bail;
use show::Document;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use unspin_host::{place, Host, VmProcess};
use unspin_probe::{Probe, VCPUS_MAX, VMS_MAX};

/// How long it watches unless it is told.
const TIME: Duration = Duration::from_secs(10);

const HELP: &str = "\
A VM loses time to 9 causes: contention (a vCPU is runnable, and another task has its CPU), spin-switch \
(pause-loop exits), idle-switch (sleep and wake-up), ipi (interrupts), user-spin (spinning in user \
space), cache, device (emulated devices), msr (model-specific registers) and monitor (the VMM's other \
threads). Each is shown in seconds per second, and as a share of the wall time of all vCPUs. A \
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
    /// The VM: any of its names, its UUID or VMID, or PID-N from `unspin status`. KIND:NAME says what is
    /// meant, as in vmid:104, pid:4242 or name:web1. Default: all VMs.
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
    let all = vms::processes(&host)?;
    let asked = args.vm.as_ref().map(|given| vms::find_process(all.clone(), &host, given));
    // A name that fits several is wrong on any computer. That there is none may be for want of permission.
    let asked = match asked {
        Some(Err(e)) if e.downcast_ref::<Usage>().is_some() => return Err(e),
        asked => asked,
    };
    let mut probe = Probe::load_detailed(args.sysfs.exists()).map_err(cannot)?;
    let chosen = match asked {
        Some(vm) => vec![vm?],
        None if all.is_empty() => bail!("no VM runs on this host"),
        None => all.clone(),
    };
    // The other VMs are watched too, as far as there is room: the selected ones may wait for their vCPUs.
    let running = |process: VmProcess| Running { threads: host.threads(process.pid), process };
    let is_chosen = |vm: &VmProcess| chosen.iter().any(|chosen| chosen.pid == vm.pid);
    let others = all.iter().filter(|vm| !is_chosen(vm)).cloned();
    let vms: Vec<Running> = chosen.iter().cloned().chain(others).map(running).collect();
    let (threads, left_out) = fitting(vms.iter(), VMS_MAX as usize, VCPUS_MAX as usize - 1);
    if left_out > 0 {
        say!(
            "unspin: {left_out} of {} VMs are not watched, for there is no room for more; where others \
             wait for them, they count as tasks of the host",
            vms.len()
        );
    }
    probe.watch(&threads).map_err(cannot)?;
    wait(SETTLE, &stop, &mut |_| {})?;
    let places = Places { sysfs: &args.sysfs, host: &host };
    let read = || -> anyhow::Result<_> {
        let facts = Facts::read(places, &chosen, &all);
        let facts = facts.with_seen(probe.read_vms().map_err(cannot)?);
        Ok((probe.read().map_err(cannot)?, facts))
    };
    let (before, facts_before) = read()?;
    let mut passing = Passing::new(time, "watching vCPUs");
    wait(time, &stop, &mut |passed| passing.at(passed))?;
    let (after, facts) = read()?;
    let is_watched = |vm: &&VmProcess| threads.iter().any(|thread| thread.pid == vm.pid);
    // Threads of vCPUs may be known by now that were not.
    let now = |vm: &VmProcess| {
        let now = host.vm_process(vm.pid).filter(|now| now.names == vm.names);
        running(now.map_or_else(|| vm.clone(), |now| now.called_as(vm)))
    };
    let chosen: Vec<Running> = chosen.iter().filter(is_watched).map(now).collect();
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
