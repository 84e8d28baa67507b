// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cgroups and VMs compete with which: the JSON document.

use super::share::{entitled, got, Sibling};
use super::Read;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use unspin_host::{tightest, Groups, Host, Limit, Limited, Names, Rival, Tree, Used, VmProcess};

/// What was read from the host.
pub struct Found<'a> {
    pub host: &'a Host,
    pub tree: &'a Tree,
    pub groups: &'a Groups,
    pub all: &'a [VmProcess],
    pub chosen: &'a BTreeSet<u32>,
}

#[derive(Debug, Serialize)]
pub struct Document {
    pub schema: u32,
    pub window_s: f64,
    /// Number of online CPUs; null if unknown.
    pub cpus: Option<usize>,
    /// The scheduler that replaces the kernel's own, in words; null if none is enabled.
    pub sched_ext: Option<String>,
    /// Parents come before their children.
    pub groups: Vec<OfGroup>,
    pub vms: Vec<OfVm>,
    /// The name of each VM of the host in tables, and the CPU time of its process, in CPUs.
    #[serde(skip)]
    pub all: BTreeMap<u32, (String, Option<f64>)>,
}

#[derive(Debug, Serialize)]
pub struct OfGroup {
    pub path: String,
    /// Version of its cgroup hierarchy.
    pub version: u32,
    /// The path of its parent; null for the root.
    pub within: Option<String>,
    /// In units of cpu.weight; for version 1, cpu.shares × 100/1024. Null for the root.
    pub weight: Option<f64>,
    pub quota_cpus: Option<f64>,
    /// Null if its CPU time is unknown.
    pub is_busy: Option<bool>,
    /// Its share by weight of the CPU time of its busy siblings and itself; null if it is idle.
    pub entitled: Option<f64>,
    /// Its share of the CPU time that it and its siblings used.
    pub got: Option<f64>,
    pub cpus: Option<f64>,
    /// How long its own quota kept tasks from running, summed over CPUs; null if unknown.
    pub throttled_s_per_s: Option<f64>,
    /// CPU time of its tasks outside of its listed children; null if it has no listed children.
    pub rest_cpus: Option<f64>,
    /// The process of the VM to which it belongs alone.
    pub own: Option<u32>,
    /// Processes of VMs whose threads compete in it one by one.
    pub threads_of: Vec<u32>,
}

#[derive(Debug, Serialize)]
pub struct OfVm {
    pub name: Option<String>,
    pub names: Names,
    pub pid: u32,
    pub uuid: Option<String>,
    /// The cgroup by whose weight it competes; null if that is the root or unknown.
    pub group: Option<String>,
    /// Whether that cgroup belongs to the VM alone; null if unknown.
    pub is_own: Option<bool>,
    /// Processes of the other VMs in it.
    pub beside: Vec<u32>,
    /// The weight of its own cgroup.
    pub weight: Option<f64>,
    /// CPU time of its process, in CPUs.
    pub cpus: Option<f64>,
    pub quotas: Vec<OfQuota>,
    /// The CPUs that these quotas allow all its vCPUs together; null if none limits it.
    pub limit_cpus: Option<f64>,
    /// The reason why its cgroup is unknown; null if it is known.
    pub unknown: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct OfQuota {
    pub path: String,
    pub cpus: f64,
    /// vm: all vCPUs; vcpus: some of them; others: other threads of the VMM.
    pub of: &'static str,
    /// The numbers of the vCPUs, if it limits only some.
    pub vcpus: Vec<u32>,
    /// How to raise it.
    pub remedy: String,
}

impl OfQuota {
    fn new(limit: &Limit, vm: &VmProcess) -> OfQuota {
        let (of, vcpus) = match &limit.of {
            Limited::Vm => ("vm", Vec::new()),
            Limited::Vcpus(numbers) => ("vcpus", numbers.clone()),
            Limited::Others => ("others", Vec::new()),
        };
        let path = limit.group.path.clone();
        OfQuota { path, cpus: limit.cpus, of, vcpus, remedy: limit.remedy(vm) }
    }
}

impl Document {
    pub fn new(found: &Found, rivals: &[Rival], [before, after]: [&Read; 2]) -> Document {
        let window_s = (after.at - before.at).as_secs_f64().max(1e-9);
        let per_s = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9 / window_s;
        let cpus_of_vm = |pid: u32| Some(per_s(*before.vms.get(&pid)?, *after.vms.get(&pid)?));
        let each = before.groups.iter().zip(&after.groups);
        let used: Vec<Option<(f64, Option<f64>)>> = each
            .map(|(from, to)| {
                let (from, to): (Used, Used) = ((*from)?, (*to)?);
                let throttled = from.throttled_ns.zip(to.throttled_ns);
                let throttled = throttled.map(|(from, to)| per_s(from, to));
                Some((per_s(from.cpu_ns, to.cpu_ns), throttled))
            })
            .collect();
        let all = found.all.iter().map(|vm| (vm.pid, (vm.title().to_string(), cpus_of_vm(vm.pid))));
        let vms = found.all.iter().filter(|vm| found.chosen.contains(&vm.pid));
        Document {
            schema: 1,
            window_s,
            cpus: found.host.online_cpus().map(|cpus| cpus.len()),
            sched_ext: found.host.sched_ext().map(|of| of.to_string()),
            groups: of_groups(rivals, &used, &cpus_of_vm),
            vms: vms.map(|vm| OfVm::new(found, vm, cpus_of_vm(vm.pid))).collect(),
            all: all.collect(),
        }
    }
}

fn of_groups(
    rivals: &[Rival],
    used: &[Option<(f64, Option<f64>)>],
    cpus_of_vm: &dyn Fn(u32) -> Option<f64>,
) -> Vec<OfGroup> {
    let mut inside: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, rival) in rivals.iter().enumerate() {
        inside.entry(rival.within.unwrap_or(usize::MAX)).or_default().push(at);
    }
    let cpus = |at: usize| used[at].map(|(cpus, _)| cpus);
    let rest_of = |at: usize| -> Option<f64> {
        let parts: Option<f64> = match inside.get(&at) {
            Some(children) => children.iter().map(|child| cpus(*child)).sum(),
            None if rivals[at].threads_of.is_empty() => None,
            None => rivals[at].threads_of.iter().map(|pid| cpus_of_vm(*pid)).sum(),
        };
        Some((cpus(at)? - parts?).max(0.0))
    };
    let of_group = |(at, rival): (usize, &Rival)| OfGroup {
        path: rival.group.path.clone(),
        version: if rival.group.version == unspin_host::Version::One { 1 } else { 2 },
        within: rival.within.map(|within| rivals[within].group.path.clone()),
        weight: rival.weight,
        quota_cpus: rival.quota_cpus,
        is_busy: cpus(at).map(|_| Sibling { weight: None, cpus: cpus(at) }.is_busy()),
        entitled: None,
        got: None,
        cpus: cpus(at),
        throttled_s_per_s: used[at].and_then(|(_, throttled)| throttled),
        rest_cpus: rest_of(at),
        own: rival.own,
        threads_of: rival.threads_of.clone(),
    };
    let mut all: Vec<OfGroup> = rivals.iter().enumerate().map(of_group).collect();
    for (within, beside) in inside.iter().filter(|(within, _)| **within != usize::MAX) {
        let sibling = |at: &usize| Sibling { weight: rivals[*at].weight, cpus: cpus(*at) };
        let siblings: Vec<Sibling> = beside.iter().map(sibling).collect();
        let rest = all[*within].rest_cpus.unwrap_or(0.0);
        let shares = entitled(&siblings).into_iter().zip(got(&siblings, rest));
        for (at, (entitled, got)) in beside.iter().zip(shares) {
            (all[*at].entitled, all[*at].got) = (entitled, got);
        }
    }
    all
}

impl OfVm {
    fn new(found: &Found, vm: &VmProcess, cpus: Option<f64>) -> OfVm {
        let place = found.groups.place(found.tree, vm.pid);
        let limits = found.groups.limits(found.tree, vm.pid);
        let known = place.as_ref().ok();
        let group = known.and_then(|place| place.group.as_ref());
        let is_own = known.map(|place| place.is_own);
        let tightest = tightest(&limits, vm.vcpu_count);
        OfVm {
            names: vm.names.clone(),
            name: vm.name_text(),
            pid: vm.pid,
            uuid: vm.uuid(),
            group: group.map(|group| group.path.clone()),
            is_own,
            beside: known.map(|place| place.beside.iter().copied().collect()).unwrap_or_default(),
            weight: group.filter(|_| is_own == Some(true)).and_then(|of| found.tree.weight(of)),
            cpus,
            quotas: limits.iter().map(|limit| OfQuota::new(limit, vm)).collect(),
            limit_cpus: tightest.map(|(_, cpus)| cpus),
            unknown: place.err(),
        }
    }
}
