// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin neighbours`: who competes with whom for CPU time, by which weights and quotas.

mod document;
mod share;
mod show;

use crate::exit::Cannot;
use crate::fit::terminal_width;
use crate::out;
use crate::progress::Passing;
use crate::span::{seconds, stopped_by_signals, wait};
use crate::vms;
use anyhow::bail;
use document::{Document, Found, OfVm};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use unspin_host::{place, Groups, Host, Rival, Tree, Used};

const TIME: &str = "5";

const HELP: &str = "\
Linux divides CPU time among cgroups. At each level, the cgroups that want CPU time get it in proportion to \
their weights (cpu.weight, or cpu.shares of version 1). A VM competes by the weight of the nearest cgroup \
around its vCPUs for which the cpu controller is enabled. If this cgroup contains other VMs, too, their \
threads compete one by one, and no VM has a share of its own.

The table shows the cgroups around VMs, and the busy cgroups beside them. entitled: the cgroup's share \
of its parent's CPU time, by its weight among the busy cgroups beside it. got: the share that it used. A \
cgroup that used less than 0.01 CPUs is idle, and is entitled to nothing. Tasks directly in a cgroup that \
contains other cgroups are weighed one by one, and have no share.

own CPUs: no busy cgroup beside this one may use its CPUs, so it competes with none. The CPUs of a VM are \
those on which its vCPUs may run; the CPUs of another cgroup are those of its cpuset. If the CPUs of two cgroups overlap in part, or if \
other busy cgroups share them, the shares count as if all could use every CPU. Weights do not hold for \
vCPUs of a real-time policy.

With a VM, the command shows the cgroups around the VM, and those inside the VM's own cgroup. It changes \
nothing, and needs no root if /proc and the cgroups are readable.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The VM: any of its names, its UUID or VMID, or PID-N from `unspin status`. KIND:NAME selects
    /// the kind of name, as in pid:4242 or vmid:104. Default: all VMs.
    #[arg(value_name = "VM")]
    vm: Option<OsString>,
    /// How long to watch, in seconds, 0.1 to 3600.
    #[arg(long, value_name = "S", value_parser = seconds, default_value = TIME)]
    seconds: Duration,
    /// Print JSON, with all cgroups and quotas.
    #[arg(long)]
    json: bool,
    #[arg(long, hide = true, default_value_os_t = place::proc())]
    proc: PathBuf,
}

/// The CPU time used by cgroups and VMs up to a point in time.
struct Read {
    at: Instant,
    groups: Vec<Option<Used>>,
    /// The inodes of their directories; `None`: it is gone.
    inodes: Vec<Option<u64>>,
    /// CPU time of VMs' processes, in ns.
    vms: BTreeMap<u32, u64>,
    /// When these started: another process may get the id of one that ended.
    started: BTreeMap<u32, u64>,
    /// VMs whose process is gone.
    ended: BTreeSet<u32>,
}

impl Read {
    fn new(tree: &Tree, host: &Host, rivals: &[Rival], pids: impl Iterator<Item = u32>) -> Read {
        let inode = |rival: &Rival| {
            let found = tree.dir(&rival.group).metadata().ok();
            found.filter(Metadata::is_dir).map(|of| of.ino())
        };
        let pids: Vec<u32> = pids.collect();
        let time = |pid: &u32| Some((*pid, host.cpu_time_ns(*pid)?));
        let start = |pid: &u32| Some((*pid, host.start_time(*pid)?));
        Read {
            at: Instant::now(),
            inodes: rivals.iter().map(inode).collect(),
            groups: rivals.iter().map(|rival| tree.used(&rival.group)).collect(),
            vms: pids.iter().filter_map(time).collect(),
            started: pids.iter().filter_map(start).collect(),
            ended: pids.iter().copied().filter(|pid| !host.is_there(*pid)).collect(),
        }
    }

    /// Whether another process has the id of a VM that was read before.
    fn has_other(&self, before: &Read, pid: u32) -> bool {
        let both = before.started.get(&pid).zip(self.started.get(&pid));
        both.is_some_and(|(from, to)| from != to)
    }
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let host = Host::at(&args.proc);
    vms::say_unseen(&host);
    let all = vms::processes(&host)?;
    let chosen: BTreeSet<u32> = match &args.vm {
        Some(given) => BTreeSet::from([vms::find_process(all.clone(), &host, given)?.pid]),
        None if all.is_empty() => bail!("no VM runs on this host"),
        None => all.iter().map(|vm| vm.pid).collect(),
    };
    let tree = Tree::of(&host);
    let groups = Groups::of(&tree, &host, &all);
    let rivals = Rival::all(&tree, &groups, &chosen, args.vm.is_some());
    if rivals.is_empty() {
        let why = |pid: &u32| Some(format!("process {pid}: {}", groups.place(&tree, *pid).err()?));
        let why: Vec<String> = chosen.iter().filter_map(why).collect();
        return Err(Cannot(why.join("\n")).into());
    }
    let stop = stopped_by_signals()?;
    let read = || Read::new(&tree, &host, &rivals, groups.vms());
    let found = Found { host: &host, tree: &tree, groups: &groups, all: &all, chosen: &chosen };
    // The cgroup of a VM that ends is gone afterwards.
    let vms = OfVm::chosen(&found);
    let before = read();
    let mut passing = Passing::new(args.seconds, "watching cgroups");
    let ended_early = wait(args.seconds, &stop, &mut |passed| passing.at(passed)).is_err();
    drop(passing);
    let after = read();
    if ended_early {
        say!("unspin: interrupted: the results cover the time until then");
    }
    let document = Document::new(&found, &rivals, vms, [&before, &after]);
    match args.json {
        true => out::json(&document),
        false => out::print(&show::text(&document, terminal_width())),
    }
}

#[cfg(test)]
mod tests;
