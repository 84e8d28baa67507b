// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin shape`: shares a VM's CPU time out among its vCPUs by what each can use.

mod apart;
mod decide;
mod document;
mod nice;
mod place;
mod shaping;
mod vm;
mod written;

use crate::exit::Usage;
use crate::out;
use crate::span::stopped_by_signals;
use crate::sysfs::ROOT;
use crate::undo::{told, Guard, Undo};
use crate::watch::facts::Detail;
use crate::watch::{Kernel, Paced, Paces, Source};
use decide::Parts;
use place::Places;
use shaping::{Asked, Shaping};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use unspin_host::journal::JOURNAL;
use unspin_host::{cpus, Host};
use written::Writer;
pub use written::{read as what_is_shaped, Written, SHAPED};

const HELP: &str = "\
The vCPUs of a VM have equal weights, and often unequal work: one holds the lock that the others spin for. \
Each period this command looks at what each vCPU used, and whether it could go on at the period's end. A \
vCPU that could go on gets a larger part of the VM's CPU time in the next period, one that had no more to \
do gets what it used. The parts are set as cpu.weight of the vCPUs' cgroups, which libvirt makes. Of the \
host the VM gets its part by its own weight, which is corrected for that, and no less than before.

A vCPU that is late gets a shorter slice, with which it runs sooner when it wakes up; one that has time \
gets a longer one.

With the resolver each vCPU is pinned to a CPU, so that those that need most are apart. vCPUs that are \
pinned already stay.

Where vCPUs share a cgroup they get nice values in place of weights.

While nothing changes it looks less often, every eight periods at most.

Of 100 periods the first five have weights and slices as they were before, to measure what the VM gets \
with them.

What is changed is noted before (/run/unspin/journal). It is put back when the command ends (Ctrl-C, TERM, \
HUP), at an error, and by a second process if this one is killed or hangs; failing all that, by the next \
unspin that uses the journal, or by unspin diagnose --put-back.";

/// More CPUs than any kernel has.
const CPUS_MAX: u32 = 1 << 13;

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The VMs: name or UUID as QEMU and libvirt have it, process id, or PID-N as status shows it. Where a
    /// name looks like an id: name:NAME, pid:ID. Without any, all VMs, and those that start later.
    #[arg(value_name = "VM")]
    vms: Vec<OsString>,
    /// Change nothing; print what would be set, each period.
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: end after one period.
    #[arg(long, requires = "dry_run")]
    once: bool,
    /// Where there is no VM to shape, wait for one.
    #[arg(long, conflicts_with = "once")]
    wait: bool,
    /// A line of JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Length of a period, in milliseconds, 20 to 1000.
    #[arg(long, value_name = "MS", default_value = "80",
          value_parser = clap::value_parser!(u64).range(20..=1000))]
    period_ms: u64,
    /// What is adapted: vCPUs' parts of the VM's CPU time (time), how soon they get a CPU when they wake up
    /// (latency, kernel 6.12 and later), and on which CPU each is (resolver; not of VMs that are pinned).
    #[arg(long, value_name = "PARTS", value_delimiter = ',', default_value = "time,latency")]
    parts: Vec<Part>,
    /// With the resolver: vCPUs may also be moved from one NUMA node to another.
    #[arg(long)]
    across_nodes: bool,
    /// With the resolver: vCPUs that are pinned may be moved, too, within the CPUs of all vCPUs of their VM.
    #[arg(long)]
    pinned: bool,
    #[arg(long, hide = true, default_value = "/sys/devices/system")]
    system: PathBuf,
    #[arg(long, hide = true, default_value = ROOT)]
    sysfs: PathBuf,
    #[arg(long, hide = true, default_value = "/proc")]
    proc: PathBuf,
    #[arg(long, hide = true, default_value = "/sys/fs/cgroup")]
    cgroups: PathBuf,
    #[arg(long, hide = true, default_value = JOURNAL)]
    journal: PathBuf,
    /// For whoever starts it: says `ready` when it has begun, and ends with its standard input.
    #[arg(long, hide = true)]
    beside: bool,
    /// vCPUs' times that are made up, for tests.
    #[arg(long, hide = true)]
    synthetic_vcpus: Option<Paces>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Time,
    Latency,
    Resolver,
}

impl Args {
    fn parts(&self) -> Parts {
        let has = |part| self.parts.contains(&part);
        Parts { time: has(Part::Time), latency: has(Part::Latency), resolver: has(Part::Resolver) }
    }

    /// Sets of CPUs between which no vCPU is moved.
    fn nodes(&self) -> Vec<BTreeSet<u32>> {
        match cpus::nodes(&self.system) {
            nodes if nodes.is_empty() || self.across_nodes => vec![(0..CPUS_MAX).collect()],
            nodes => nodes,
        }
    }

    fn source(&self, host: &Host, period: Duration) -> anyhow::Result<Box<dyn Source>> {
        if let Some(paces) = &self.synthetic_vcpus {
            return Ok(Box::new(Paced::new(host.clone(), paces.clone())));
        }
        let mut kernel = Kernel::brief(host.clone(), &self.sysfs, Detail::Causes)?;
        if self.parts().latency {
            kernel.keep_wakers(period);
        }
        Ok(Box::new(kernel))
    }
}

/// Whoever started this one ends it by closing what it reads.
fn end_with_input(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stop.store(true, Ordering::Relaxed);
    });
}

/// What was put back, of a host with many vCPUs the number alone.
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
        let why = "--pinned and --across-nodes say what the resolver may do: --parts time,latency,resolver";
        return Err(Usage(why.into()).into());
    }
    let stop = stopped_by_signals()?;
    let host = Host::at(&args.proc);
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
            cgroups: &args.cgroups,
            nodes: args.nodes(),
            moves_pinned: args.pinned,
            online: None,
        },
    };
    let mut shaping = Shaping::new(asked, &mut *source, &stop);
    shaping.choose()?;
    let writer = Writer::beside(&args.journal);
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
        say!("put back: {}", in_short(&told));
    }
    if back.is_ok() {
        guard.done();
    }
    result.and(back.map(drop))
}
