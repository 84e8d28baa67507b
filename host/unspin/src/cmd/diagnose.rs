// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin diagnose`: how much time VMs lose, to which causes, and advice.

mod ab;
mod cost;
pub(super) mod show;
pub(super) mod table;

use crate::exit::Usage;
use crate::fit::terminal_width;
use crate::out;
use crate::progress::Passing;
use crate::span::{seconds, stopped_by_signals, wait};
use crate::vms;
use crate::watch::facts::Detail;
use crate::watch::{Sample, SourceArgs, Watched, SETTLE};
use anyhow::bail;
use show::Document;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;
use unspin_host::{Host, VmProcess};

const TIME: Duration = Duration::from_secs(10);

const HELP: &str = "\
For several VMs it prints one line each, the worst first. For one VM, or with --details, it also prints \
the vCPUs, the states, which tasks have the CPUs that the VM waits for, and advice. Ctrl-C ends it early and \
prints what was measured until then. Lines are as wide as the terminal, or as COLUMNS, if that variable \
is set. Without a terminal, their width is 80.

A VM loses time to 9 causes: contention (a vCPU is runnable, and another task has its CPU), spin-switch \
(pause-loop exits), idle-switch (sleep and wake-up), ipi (interrupts), user-spin (spinning in user \
space), cache, device (emulated devices), msr (model-specific registers) and monitor (the VMM's other \
threads). Each is shown in vCPU-seconds per second, and as a share of the wall time of all vCPUs. A \
share is measured, estimated, or unknown; unknown is not 0.

BPF programs in the host kernel collect the times. They change nothing, and nothing is installed in the \
guest. The module is optional; if it is loaded, its counts are used. Requires root.

--ab runs an experiment, and changes a setting: it switches a running VM between A (the present setting) and B in \
phases of --seconds (ABBA ABBA …), and compares them. Each phase of A is compared with the phase of B \
beside it. Differences have a 95 % confidence interval. Each change is first recorded in \
/run/unspin/journal. The setting is restored at the end, on an error or a signal, and by a guard process if this \
process is killed or hangs. If both are killed, --put-back or the next unspin that uses the journal \
restores the setting.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The VM: any of its names, its UUID or VMID, or PID-N from `unspin status`. KIND:NAME selects
    /// the kind of name, as in vmid:104, pid:4242 or name:web1. Default: all VMs.
    #[arg(value_name = "VM")]
    vm: Option<OsString>,
    /// How long to watch, in seconds, 0.1 to 3600 [default: 10]. With --ab: the length of a phase [default: 5].
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Print JSON, with all values.
    #[arg(long)]
    json: bool,
    /// Print all about each VM instead of one line per VM.
    #[arg(long)]
    details: bool,
    #[command(flatten)]
    ab: ab::Args,
    #[command(flatten)]
    source: SourceArgs,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.ab.put_back {
        return args.ab.put_back(&args.source.proc, args.json);
    }
    match (args.ab.cause(), &args.vm) {
        (Some(cause), Some(vm)) => {
            let (seconds, json) = (args.seconds, args.json);
            let (sysfs, proc) = (&args.source.sysfs, &args.source.proc);
            args.ab.run(cause, &ab::Asking { vm, seconds, json, sysfs, proc })
        }
        _ => watch(args),
    }
}

/// Watches, and changes nothing.
fn watch(args: &Args) -> anyhow::Result<()> {
    let time = args.seconds.unwrap_or(TIME);
    let stop = stopped_by_signals()?;
    let asked = asked(args)?;
    let mut source = args.source.open(Detail::All)?;
    let chosen = chosen(args, asked, &source.sample()?)?;
    // Watch the other VMs too: the selected one may wait for their vCPUs.
    if let Some(vm) = chosen.iter().next().filter(|_| args.vm.is_some()) {
        source.prefer(*vm);
        source.look()?;
    }
    wait(SETTLE, &stop, &mut |_| {})?;
    let before = source.sample()?;
    say_left_out(&before);
    let mut passing = Passing::new(time, "watching vCPUs");
    let ended_early = wait(time, &stop, &mut |passed| passing.at(passed)).is_err();
    drop(passing);
    let after = source.sample()?;
    if ended_early {
        say!("unspin: interrupted: the results cover the time until then");
    }
    say_started(&before, &after, |_| args.vm.is_none());
    let watched = watched(&chosen, &before, &after)?;
    let document = Document::new(&watched, &before, &after).of(chosen.len());
    match args.json {
        true => out::json(&document),
        false => out::print(&document.text(terminal_width(), args.details)),
    }
}

/// The process of the VM that is asked for, if it is there. An ambiguous name is an error on any computer, even if that
/// cannot watch vCPUs.
fn asked(args: &Args) -> anyhow::Result<Option<u32>> {
    let Some(given) = args.vm.as_ref().filter(|_| args.source.synthetic.is_none()) else {
        return Ok(None);
    };
    let host = Host::at(&args.source.proc);
    match vms::find_process(vms::processes(&host)?, &host, given) {
        Err(e) if e.downcast_ref::<Usage>().is_some() => Err(e),
        found => Ok(found.ok().map(|vm| vm.pid)),
    }
}

fn chosen(args: &Args, asked: Option<u32>, first: &Sample) -> anyhow::Result<BTreeSet<u32>> {
    let all: Vec<VmProcess> = first.vms.iter().map(|vm| vm.process.clone()).collect();
    match &args.vm {
        Some(_) if all.iter().any(|vm| Some(vm.pid) == asked) => Ok(asked.into_iter().collect()),
        Some(given) => {
            let vm = vms::find_process(all, &Host::at(&args.source.proc), given)?;
            Ok(BTreeSet::from([vm.pid]))
        }
        None if all.is_empty() => bail!("no VM runs on this host"),
        None => Ok(all.iter().map(|vm| vm.pid).collect()),
    }
}

pub(super) fn say_left_out(sample: &Sample) {
    if sample.left_out > 0 {
        say!(
            "unspin: {} of {} VMs are not watched, because the limit is reached; if other VMs wait for \
             these, the waits count as waits for tasks of the host",
            sample.left_out,
            sample.vms.len()
        );
    }
}

pub(super) fn say_started(before: &Sample, after: &Sample, is_asked: impl Fn(&VmProcess) -> bool) {
    let were: BTreeSet<u32> = before.vms.iter().map(|vm| vm.process.pid).collect();
    let are = after.vms.iter().map(|vm| &vm.process);
    for vm in are.filter(|vm| !were.contains(&vm.pid) && is_asked(vm)) {
        say!("unspin: {} started during the measurement", show::title(vm));
    }
}

/// What those VMs did that ran the whole time. Prints the names of the others.
///
/// # Errors
/// None of them did.
pub(super) fn watched<'a>(
    chosen: &BTreeSet<u32>,
    before: &'a Sample,
    after: &'a Sample,
) -> anyhow::Result<Vec<Watched<'a>>> {
    let is_chosen = |pid: u32| chosen.contains(&pid);
    let mut watched = Vec::new();
    for vm in after.vms.iter().filter(|vm| is_chosen(vm.process.pid)) {
        match vm.between(&before.seen, &after.seen) {
            Some(vcpus) => watched.push(vcpus),
            None => {
                let title = show::title(&vm.process);
                let is_seen = |thread| after.seen.contains_key(&thread);
                let is_left_out = vm.watched().next().is_some() && !vm.watched().any(is_seen);
                match is_left_out && after.left_out > 0 {
                    true => {} // It is one of those that were counted.
                    false => say!("unspin: {title} had no vCPU during the measurement"),
                }
            }
        }
    }
    let runs: BTreeSet<u32> = after.vms.iter().map(|vm| vm.process.pid).collect();
    for vm in before.vms.iter().filter(|vm| is_chosen(vm.process.pid)) {
        if !runs.contains(&vm.process.pid) {
            say!("unspin: {} ended during the measurement", show::title(&vm.process));
        }
    }
    if watched.is_empty() {
        bail!("no VM with vCPUs ran during the measurement");
    }
    Ok(watched)
}
