// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cgroups and VMs compete with which: the JSON document.

use super::share::{entitled, got, Sibling, BUSY_MIN};
use super::Read;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use unspin_host::{
    cpus, tightest, Groups, Host, Limit, Limited, Names, Rival, Tree, Used, Vcpu, VmProcess,
};

/// Each VM would list all others if all are in one cgroup.
const BESIDE_MAX: usize = 32;

pub struct Found<'a> {
    pub host: &'a Host,
    pub tree: &'a Tree,
    pub groups: &'a Groups,
    pub all: &'a [VmProcess],
    pub chosen: &'a BTreeSet<u32>,
}

impl Found<'_> {
    /// The CPUs of a cgroup: if it is a VM's, those on which the vCPUs may run. `None` if unknown.
    fn cpus(&self, rival: &Rival) -> Option<BTreeSet<u32>> {
        let own = rival.own.and_then(|pid| self.all.iter().find(|vm| vm.pid == pid));
        let allowed = |vm: &VmProcess| -> BTreeSet<u32> {
            vm.vcpus.iter().flat_map(|vcpu| self.host.allowed_cpus(vcpu.tid)).collect()
        };
        let of_vm = own.filter(|vm| vm.is_all_known()).map(allowed);
        of_vm.or_else(|| self.tree.cpus(&rival.group)).filter(|cpus| !cpus.is_empty())
    }

    /// Whether the kernel runs vCPUs before all tasks that have a weight: `SCHED_FIFO`, `SCHED_RR` and
    /// `SCHED_DEADLINE`.
    fn is_real_time(&self, vm: &VmProcess) -> bool {
        let policy = |vcpu: &Vcpu| self.host.scheduling_policy(vcpu.tid);
        vm.vcpus.iter().any(|vcpu| matches!(policy(vcpu), Some(1 | 2 | 6)))
    }
}

#[derive(Debug, Serialize)]
pub struct Document {
    pub schema: u32,
    pub window_s: f64,
    /// Number of online CPUs; null if unknown.
    pub cpus: Option<usize>,
    /// The scheduler that replaces the kernel's own, in words; null if none is enabled.
    pub sched_ext: Option<String>,
    /// Whether tasks in the root cgroup compete by sessions.
    pub autogroups: bool,
    /// Parents come before their children.
    pub groups: Vec<OfGroup>,
    pub vms: Vec<OfVm>,
    /// All VMs of the host.
    #[serde(skip)]
    pub all: BTreeMap<u32, Shown>,
}

#[derive(Debug, Default)]
pub struct Shown {
    pub name: String,
    /// CPU time of its process, in CPUs.
    pub cpus: Option<f64>,
    pub ended: bool,
    /// The cgroups by whose weights its vCPUs compete.
    pub groups: Vec<String>,
    pub is_real_time: bool,
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
    /// The CPUs that it has alone (a partition of cpusets): it competes with none of its siblings.
    pub own_cpus: Option<String>,
    /// Its CPUs if those of every other busy cgroup beside it are others: it competes with none of them.
    pub apart_cpus: Option<String>,
    /// Null if its CPU time is unknown.
    pub is_busy: Option<bool>,
    /// Whether it was removed during the measurement: then it counts as idle.
    pub ended: bool,
    /// Its share by weight of the CPU time of its busy siblings and itself; null if it is idle.
    pub entitled: Option<f64>,
    /// Its share of the CPU time that it and its siblings used.
    pub got: Option<f64>,
    pub cpus: Option<f64>,
    /// How long its own quota kept tasks from running, summed over CPUs; null if unknown.
    pub throttled_s_per_s: Option<f64>,
    /// CPU time of its tasks that are neither in its listed children nor of the VMs in `threads_of`, and of what
    /// ended; null if it has neither, or if the VMs have threads in both.
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
    /// Processes of other VMs in it, at most [`BESIDE_MAX`]; `threads_of` of the cgroup has all.
    pub beside: Vec<u32>,
    /// How many other VMs are in it; null if unknown.
    pub beside_count: Option<usize>,
    pub weight: Option<f64>,
    /// CPU time of its process, in CPUs.
    pub cpus: Option<f64>,
    pub ended: bool,
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
    /// `vms`: the chosen ones, as they were before the measurement.
    pub fn new(
        found: &Found,
        rivals: &[Rival],
        vms: Vec<OfVm>,
        [before, after]: [&Read; 2],
    ) -> Document {
        let window_s = (after.at - before.at).as_secs_f64().max(1e-9);
        // The kernel's sums over CPUs may fall a little.
        let per_s = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9 / window_s;
        let each = before.groups.iter().zip(&after.groups).enumerate();
        let used: Vec<During> = each
            .map(|(at, (from, to))| {
                // The counts of a cgroup that was made again began with 0.
                let is_same = before.inodes[at] == after.inodes[at];
                let none = Used { cpu_ns: 0, throttled_ns: Some(0) };
                let both = from.map(|from| if is_same { from } else { none }).zip(*to);
                let throttled = |(from, to): (Used, Used)| from.throttled_ns.zip(to.throttled_ns);
                let throttled = both.and_then(throttled).map(|(from, to)| per_s(from, to));
                let cpus = both.map(|(from, to)| per_s(from.cpu_ns, to.cpu_ns));
                During { cpus, throttled, ended: after.inodes[at].is_none() }
            })
            .collect();
        let shown = |vm: &VmProcess| {
            let is_other = after.has_other(before, vm.pid);
            let from = before.vms.get(&vm.pid);
            let to = after.vms.get(&vm.pid).filter(|_| !is_other);
            let cpus = from.zip(to).map(|(from, to)| per_s(*from, *to));
            let ended = is_other || (to.is_none() && after.ended.contains(&vm.pid));
            let groups = found.groups.of_vcpus(found.tree, vm.pid).into_iter();
            let groups = groups.map(|group| group.path).collect();
            let is_real_time = found.is_real_time(vm);
            (vm.pid, Shown { name: vm.title().to_string(), cpus, ended, groups, is_real_time })
        };
        let usable = rivals.iter().map(|rival| found.cpus(rival)).collect();
        let usable = used_on(rivals, &used, usable);
        let all: BTreeMap<u32, Shown> = found.all.iter().map(shown).collect();
        let of_vm = |vm: OfVm| {
            let shown = all.get(&vm.pid);
            let ended = shown.is_some_and(|shown| shown.ended);
            OfVm { cpus: shown.and_then(|shown| shown.cpus), ended, ..vm }
        };
        Document {
            schema: 1,
            window_s,
            cpus: found.host.online_cpus().map(|cpus| cpus.len()),
            sched_ext: found.host.sched_ext().map(|of| of.to_string()),
            autogroups: found.host.has_autogroups(),
            groups: of_groups(rivals, &used, &usable, &all),
            vms: vms.into_iter().map(of_vm).collect(),
            all,
        }
    }
}

struct During {
    cpus: Option<f64>,
    throttled: Option<f64>,
    ended: bool,
}

impl During {
    /// The CPU time with which it is weighed. One that has ended was idle.
    fn weighed(&self) -> Option<f64> {
        if self.ended {
            Some(0.0)
        } else {
            self.cpus
        }
    }
}

/// Whether one of these busy cgroups is restricted to CPUs that none of the others may use. `None`: its CPUs are
/// unknown.
fn is_apart(at: usize, beside: &[(usize, Option<&BTreeSet<u32>>)]) -> bool {
    let mut others = beside.iter().filter(|(other, _)| *other != at).peekable();
    let own = beside.iter().find(|(other, _)| *other == at).and_then(|(_, cpus)| *cpus);
    let is_other = |cpus: &BTreeSet<u32>| own.is_some_and(|own| own.is_disjoint(cpus));
    others.peek().is_some() && others.all(|(_, cpus)| cpus.is_some_and(is_other))
}

/// The listed cgroups in each.
fn children(rivals: &[Rival]) -> BTreeMap<usize, Vec<usize>> {
    let mut inside: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, within) in rivals.iter().enumerate().filter_map(|(at, of)| Some((at, of.within?))) {
        inside.entry(within).or_default().push(at);
    }
    inside
}

/// The CPUs on which cgroups run, from those that they may use. If all busy tasks of one are in cpuset partitions
/// below it, these are the partitions' CPUs.
fn used_on(
    rivals: &[Rival],
    used: &[During],
    mut usable: Vec<Option<BTreeSet<u32>>>,
) -> Vec<Option<BTreeSet<u32>>> {
    let inside = children(rivals);
    let mut is_apart: Vec<bool> = rivals.iter().map(|of| of.own_cpus.is_some()).collect();
    let is_busy = |at: &usize| Sibling { weight: None, cpus: used[*at].weighed() }.is_busy();
    // Children come after their parents.
    for (at, inside) in inside.iter().rev() {
        let of_inside: Option<f64> = inside.iter().map(|child| used[*child].weighed()).sum();
        let rest = used[*at].cpus.zip(of_inside).map(|(all, of_inside)| all - of_inside);
        let busy: Vec<usize> = inside.iter().copied().filter(is_busy).collect();
        let is_all = rest.is_some_and(|rest| rest < BUSY_MIN) && rivals[*at].own.is_none();
        if !is_all || busy.is_empty() || busy.iter().any(|child| !is_apart[*child]) {
            continue;
        }
        let of_busy: Option<Vec<&BTreeSet<u32>>> =
            busy.iter().map(|child| usable[*child].as_ref()).collect();
        let all = of_busy.map(|all| all.into_iter().flatten().copied().collect());
        if let Some(all) = all {
            (usable[*at], is_apart[*at]) = (Some(all), true);
        }
    }
    usable
}

fn of_groups(
    rivals: &[Rival],
    used: &[During],
    usable: &[Option<BTreeSet<u32>>],
    vms: &BTreeMap<u32, Shown>,
) -> Vec<OfGroup> {
    let inside = children(rivals);
    // The CPU time of tasks outside of listed children.
    let outside = |at: usize| -> Option<f64> {
        let children = inside.get(&at).into_iter().flatten();
        let children: Option<f64> = children.map(|child| used[*child].weighed()).sum();
        Some((used[at].cpus? - children?).max(0.0))
    };
    let threads = |pid: &u32| match vms.get(pid)? {
        vm if vm.ended => Some(0.0),
        vm => vm.cpus,
    };
    let rest_of = |at: usize| -> Option<f64> {
        let of = &rivals[at].threads_of;
        let is_shared = inside.contains_key(&at) || !of.is_empty();
        let threads: Option<f64> = of.iter().map(threads).sum();
        let rest = outside(at).filter(|_| is_shared)? - threads?;
        // Less than none: some of the VMs' threads are in listed children.
        (rest > -BUSY_MIN).then_some(rest.max(0.0))
    };
    // One with CPUs of its own has no weight among the others.
    let weight = |of: &Rival| of.weight.filter(|_| of.own_cpus.is_none());
    let sibling = |at: usize| Sibling { weight: weight(&rivals[at]), cpus: used[at].weighed() };
    let of_group = |(at, rival): (usize, &Rival)| OfGroup {
        path: rival.group.path.clone(),
        version: if rival.group.version == unspin_host::Version::One { 1 } else { 2 },
        within: rival.within.map(|within| rivals[within].group.path.clone()),
        weight: rival.weight,
        quota_cpus: rival.quota_cpus,
        own_cpus: rival.own_cpus.clone(),
        apart_cpus: None,
        is_busy: used[at].weighed().map(|_| sibling(at).is_busy()),
        ended: used[at].ended,
        entitled: None,
        got: None,
        cpus: used[at].cpus,
        throttled_s_per_s: used[at].throttled,
        rest_cpus: rest_of(at),
        own: rival.own,
        threads_of: rival.threads_of.clone(),
    };
    let mut all: Vec<OfGroup> = rivals.iter().enumerate().map(of_group).collect();
    for (within, beside) in &inside {
        let mut siblings: Vec<Sibling> = beside.iter().map(|at| sibling(*at)).collect();
        let competes = |of: &Sibling| of.weight.is_some() && of.is_busy();
        let busy = beside.iter().zip(&siblings).filter(|(_, of)| competes(of));
        let busy: Vec<_> = busy.map(|(at, _)| (*at, usable[*at].as_ref())).collect();
        for (at, of) in beside.iter().zip(&mut siblings).filter(|(at, _)| is_apart(**at, &busy)) {
            of.weight = None;
            all[*at].apart_cpus = usable[*at].as_ref().map(cpus::list);
        }
        let shares = entitled(&siblings).into_iter();
        let shares = shares.zip(got(&siblings, outside(*within).unwrap_or(0.0)));
        for (at, (entitled, got)) in beside.iter().zip(shares) {
            (all[*at].entitled, all[*at].got) = (entitled, got);
        }
    }
    all
}

impl OfVm {
    /// The chosen VMs where they are now; what they do is not known yet.
    pub fn chosen(found: &Found) -> Vec<OfVm> {
        let vms = found.all.iter().filter(|vm| found.chosen.contains(&vm.pid));
        vms.map(|vm| OfVm::new(found, vm)).collect()
    }

    fn new(found: &Found, vm: &VmProcess) -> OfVm {
        let place = found.groups.place(found.tree, vm.pid);
        let limits = found.groups.limits(found.tree, vm.pid);
        let known = place.as_ref().ok();
        let group = known.and_then(|place| place.group.as_ref());
        let is_own = known.map(|place| place.is_own);
        let beside = known.map(|place| &place.beside);
        let tightest = tightest(&limits, vm.vcpu_count);
        OfVm {
            names: vm.names.clone(),
            name: vm.name_text(),
            pid: vm.pid,
            uuid: vm.uuid(),
            group: group.map(|group| group.path.clone()),
            is_own,
            beside: beside.into_iter().flatten().take(BESIDE_MAX).copied().collect(),
            beside_count: beside.map(BTreeSet::len),
            weight: group.filter(|_| is_own == Some(true)).and_then(|of| found.tree.weight(of)),
            cpus: None,
            ended: false,
            quotas: limits.iter().map(|limit| OfQuota::new(limit, vm)).collect(),
            limit_cpus: tightest.map(|(_, cpus)| cpus),
            unknown: place.err(),
        }
    }
}
