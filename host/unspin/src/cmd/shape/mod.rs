// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin shape`: divides a VM's CPU time among its vCPUs by what each can use.

mod apart;
mod decide;
mod document;
mod nice;
mod place;
mod shaping;
mod vm;

use super::written::{Writer, SHAPED};
use crate::exit::Usage;
use crate::out;
use crate::span::{end_with_input, stopped_by_signals};
use crate::sysfs::root;
use crate::undo::{told, Guard, Undo};
use crate::vms;
use crate::watch::facts::Detail;
use crate::watch::{Kernel, Paces, Script, Scripted, Source};
use decide::Parts;
pub use document::Document;
use place::Places;
use shaping::{Asked, Shaping};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use unspin_host::journal::JOURNAL;
use unspin_host::{cpus, Groups, Host, Tree};

const HELP: &str = "\
The vCPUs of a VM have equal weights, and often unequal work: one may hold the lock that the others spin \
for. In each period this command reads how much CPU time each vCPU used, and whether it was runnable at \
the end. A runnable vCPU gets a larger part of the VM's CPU time in the next period; an idle vCPU gets \
as much as it used. The parts are set as cpu.weight of the vCPUs' cgroups, which libvirt creates. The \
VM's own weight is adjusted, so that the VM keeps at least the share of the host that it had.

A vCPU whose work is urgent gets a shorter slice, so that it runs sooner after a wake-up; others get \
longer slices.

The resolver pins each vCPU to a CPU, so that the busiest vCPUs do not share one. vCPUs that are \
already pinned are not moved unless --pinned is given.

vCPUs that share a cgroup get nice values instead of weights.

While the values are stable, the command samples less often, down to once in 8 periods.

In 5 of 100 periods the original weights and slices apply, to measure how much CPU time the VM gets \
with them.

Each change is first recorded in /run/unspin/journal. The original values are restored when the command ends \
(Ctrl-C, TERM, HUP), on an error, and by a guard process if this process is killed or hangs. If both are \
killed, unspin diagnose --put-back or the next unspin that uses the journal restores them.";

/// Larger than any kernel's number of CPUs.
const CPUS_MAX: u32 = 1 << 13;

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The VMs: any of their names, their UUID or VMID, or PID-N from `unspin status`. KIND:NAME selects
    /// the kind of name, as in pid:4242. Default: all VMs, including those that start later, whose process runs as
    /// root, or as a user that exists to run VMs (qemu, libvirt-qemu, …).
    #[arg(value_name = "VM")]
    vms: Vec<OsString>,
    /// Change nothing, and print the values that each period would set.
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: exit after one period.
    #[arg(long, requires = "dry_run")]
    once: bool,
    /// Wait for a VM if none can be shaped.
    #[arg(long, conflicts_with = "once")]
    wait: bool,
    /// Print a line of JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Length of a period, in milliseconds, 20 to 1000.
    #[arg(long, value_name = "MS", default_value = "80",
          value_parser = clap::value_parser!(u64).range(20..=1000))]
    period_ms: u64,
    /// What to adapt. time: each vCPU's part of the VM's CPU time, and the VM's own weight. weight: the
    /// VM's own weight alone. latency: how soon a vCPU runs after a wake-up (kernel 6.12 and later).
    /// resolver: the CPU of each vCPU (of pinned VMs only with --pinned).
    #[arg(long, value_name = "PARTS", value_delimiter = ',', default_value = "time,latency")]
    parts: Vec<Part>,
    /// Switch off the corrections, as in the dissertation. The VM's own weight stays, only the last period
    /// decides about the next, vCPUs with nearly equal needs may get different parts, and a VM pays for the
    /// switches of its vCPUs.
    #[arg(long, hide = true)]
    uncorrected: bool,
    /// Let the resolver move vCPUs between NUMA nodes.
    #[arg(long)]
    across_nodes: bool,
    /// Let the resolver move pinned vCPUs too, within the CPUs that any vCPU of their VM may use.
    #[arg(long)]
    pinned: bool,
    #[arg(long, hide = true, default_value_os_t = root())]
    sysfs: PathBuf,
    #[arg(long, hide = true, default_value_os_t = unspin_host::place::proc())]
    proc: PathBuf,
    #[arg(long, hide = true, default_value = JOURNAL)]
    journal: PathBuf,
    /// Prints `ready` once it has started, and exits when its standard input is closed.
    #[arg(long, hide = true)]
    beside: bool,
    /// Synthetic times of vCPUs, for tests.
    #[arg(long, hide = true)]
    synthetic_vcpus: Option<Paces>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Time,
    Weight,
    Latency,
    Resolver,
}

impl Args {
    fn parts(&self) -> Parts {
        let has = |part| self.parts.contains(&part);
        let (time, uncorrected) = (has(Part::Time), self.uncorrected);
        Parts {
            time,
            latency: has(Part::Latency),
            resolver: has(Part::Resolver),
            weight: has(Part::Weight) || (time && !uncorrected),
            uncorrected,
        }
    }

    /// Sets of CPUs; vCPUs do not move between them.
    fn nodes(&self) -> Vec<BTreeSet<u32>> {
        match cpus::nodes(&unspin_host::place::sys().join("devices/system")) {
            nodes if nodes.is_empty() || self.across_nodes => vec![(0..CPUS_MAX).collect()],
            nodes => nodes,
        }
    }

    fn source(&self, host: &Host, period: Duration) -> anyhow::Result<Box<dyn Source>> {
        if let Some(paces) = &self.synthetic_vcpus {
            return Ok(Box::new(Scripted::new(host.clone(), Script::Paces(paces.clone()))));
        }
        let mut kernel = Kernel::brief(host.clone(), &self.sysfs, Detail::Causes)?;
        if self.parts().latency {
            kernel.keep_wakers(period);
        }
        Ok(Box::new(kernel))
    }
}

/// What was restored; on a host with many vCPUs only the number.
fn in_short(told: &[String]) -> String {
    const SHOWN: usize = 12;
    match told.len() > SHOWN {
        true => format!("{} values; the last: {}", told.len(), told[0]),
        false => told.join("; "),
    }
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let parts = args.parts();
    if !parts.resolver && (args.pinned || args.across_nodes) {
        let why = "--pinned and --across-nodes need the resolver: --parts time,latency,resolver";
        return Err(Usage(why.into()).into());
    }
    let stop = stopped_by_signals()?;
    let host = Host::at(&args.proc);
    vms::say_unseen(&host);
    let mut undo = match args.dry_run {
        true => None,
        false => Some(Undo::open(&args.journal, &args.proc)?),
    };
    let period = Duration::from_millis(args.period_ms);
    let mut source = args.source(&host, period)?;
    source.look()?;
    let asked = Asked {
        vms: &args.vms,
        parts,
        period,
        once: args.once,
        wait: args.wait,
        json: args.json,
        places: Places {
            host: &host,
            sysfs: &args.sysfs,
            tree: Tree::of(&host),
            groups: Groups::default(),
            sched_ext: None,
            nodes: args.nodes(),
            moves_pinned: args.pinned,
            online: None,
        },
    };
    let mut shaping = Shaping::new(asked, &mut *source, &stop);
    shaping.choose()?;
    let writer = Writer::beside(&args.journal, SHAPED);
    let Some(undo) = &mut undo else { return shaping.run(None) };
    let mut guard = Guard::start(&args.journal, &args.proc)?;
    if args.beside {
        out::print("ready\n")?;
        end_with_input(&stop);
    }
    let result = shaping.run(Some((undo, &mut guard, &writer)));
    let back = undo.put_back();
    let all = back.iter().flatten();
    let told: Vec<String> = all.filter_map(|(change, back)| told(change, back)).collect();
    if !told.is_empty() {
        say!("restored: {}", in_short(&told));
    }
    if back.is_ok() {
        guard.done();
    }
    result.and(back.map(drop))
}
