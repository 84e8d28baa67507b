// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a VM that can be changed (weights, slices and CPUs of its vCPUs), or the reason why they
//! cannot.

use super::nice;
use crate::cmd::diagnose::show::title;
use crate::sysfs::Module;
use crate::vms;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use unspin_host::journal::Target;
use unspin_host::{
    cpus, slice, tightest, Cgroup, Groups, Host, SchedExt, Tree, Version, VmProcess,
};
use unspin_text::read_kernel_text;
use unspin_uapi::{Coscheduling, Mode, Number, COSCHEDULING, MODE};

pub struct Places<'a> {
    pub host: &'a Host,
    /// The module's directory, which exists if the module is loaded.
    pub sysfs: &'a Path,
    pub tree: Tree,
    /// The cgroups of all VMs at the last look.
    pub groups: Groups,
    /// A scheduler that ignores weights, if it is enabled and weights should be set.
    pub sched_ext: Option<SchedExt>,
    /// Sets of CPUs; vCPUs do not move between them.
    pub nodes: Vec<BTreeSet<u32>>,
    pub moves_pinned: bool,
    /// The CPUs that were online at the last look; `None` if unknown.
    pub online: Option<BTreeSet<u32>>,
}

#[derive(Debug, Clone)]
pub struct Placed {
    pub vm: VmProcess,
    /// The weight of each vCPU, in the order of `vm.vcpus`: of its cgroup, or by its nice value.
    pub vcpus: Vec<Weight>,
    /// The scheduler's slice of each vCPU, in ns; empty if the kernel does not let it be set.
    pub slices: Vec<u64>,
    /// `cpu.weight` of the cgroup that belongs to the VM alone; `None` if there is no such cgroup.
    pub whole: Option<Weight>,
    /// Its part of the CPUs that its vCPUs may use, by the weights of its cgroup and its siblings; 0 if
    /// unknown.
    pub due_cpus: f64,
    /// The CPUs between which its vCPUs may be moved, or why they are not moved.
    pub cpus: Result<BTreeSet<u32>, String>,
    /// The CPUs that each vCPU may use now, including offline ones.
    pub allowed: Vec<BTreeSet<u32>>,
}

/// The weight of a thread or a cgroup, 1 to 10000, and the file or call that sets it.
#[derive(Debug, Clone)]
pub struct Weight {
    pub target: Target,
    pub is: u64,
    pub text: String,
}

impl Placed {
    /// The error says why this VM's weights are not set.
    pub fn of(places: &Places, vm: &VmProcess, busy: &mut Busy) -> Result<Placed, String> {
        is_fit(places, vm)?;
        is_of_version_2(places.host, vm)?;
        let own: Vec<Cgroup> =
            vm.vcpus.iter().map(|vcpu| places.tree.group(vcpu.tid)).collect::<Result<_, _>>()?;
        has_no_quota(places, vm)?;
        let allowed: Vec<BTreeSet<u32>> =
            vm.vcpus.iter().map(|vcpu| places.host.allowed_cpus(vcpu.tid)).collect();
        let slice = |tid| slice::of(tid).ok().filter(|ns| *ns > 0);
        let slices = vm.vcpus.iter().map(|vcpu| slice(vcpu.tid)).collect::<Option<_>>();
        let place = places.groups.place(&places.tree, vm.pid)?;
        let whole_group = place.group.filter(|_| place.is_own);
        let whole = whole_group.as_ref().map(|group| weight(&places.tree, group)).transpose()?;
        let due_cpus = match (&whole_group, &whole) {
            (Some(group), Some(whole)) => due_cpus(places, &allowed, group, whole.is, busy),
            _ => 0.0,
        };
        let has_own = vm.vcpus.iter().zip(&own).all(|(vcpu, group)| {
            places.tree.is_on(group) && is_alone(vcpu.tid, &places.tree.dir(group))
        });
        let vcpus = match has_own {
            true => weights(&places.tree, &own)?,
            false => nice_values(places.host, vm)?,
        };
        Ok(Placed {
            vm: vm.clone(),
            vcpus,
            slices: slices.unwrap_or_default(),
            whole,
            due_cpus,
            cpus: common_cpus(places, &allowed),
            allowed,
        })
    }
}

/// For vCPUs that have a cgroup each.
fn weights(tree: &Tree, own: &[Cgroup]) -> Result<Vec<Weight>, String> {
    let parents: BTreeSet<Option<Cgroup>> = own.iter().map(Cgroup::parent).collect();
    if parents.len() > 1 {
        return Err("the cgroups of its vCPUs have different parents".into());
    }
    own.iter().map(|group| weight(tree, group)).collect()
}

/// For vCPUs that share a cgroup: nice values give the weights of threads. If the cgroup belongs to the VM
/// alone, it has the VM's weight.
fn nice_values(host: &Host, vm: &VmProcess) -> Result<Vec<Weight>, String> {
    let of = |tid: u32| {
        let nice = host.nice(tid).ok_or("it has ended")?;
        let (is, text) = (nice::weight(nice), nice.to_string());
        Ok(Weight { target: Target::Nice { tid }, is, text })
    };
    vm.vcpus.iter().map(|vcpu| of(vcpu.tid)).collect()
}

fn usable(places: &Places, cpus: &BTreeSet<u32>) -> BTreeSet<u32> {
    cpus::usable(cpus, places.online.as_ref())
}

/// The CPUs that all its vCPUs may use; if pinned vCPUs are moved too, the CPUs that any of them may use.
fn common_cpus(places: &Places, allowed: &[BTreeSet<u32>]) -> Result<BTreeSet<u32>, String> {
    let sets = allowed.iter().map(|cpus| usable(places, cpus));
    if places.moves_pinned {
        return Ok(sets.flatten().collect());
    }
    match sets.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>() {
        sets if sets.len() > 1 => Err("its vCPUs are pinned to different CPUs".into()),
        mut sets => match sets.pop() {
            Some(cpus) if cpus.len() > 1 => Ok(cpus),
            _ => Err("its vCPUs are pinned to 1 CPU".into()),
        },
    }
}

/// Checks whether the module or the scheduler rules it out.
fn is_fit(places: &Places, vm: &VmProcess) -> Result<(), String> {
    if let Some(scheduler) = &places.sched_ext {
        return Err(format!("{scheduler}; stop that scheduler, or use --parts resolver alone"));
    }
    vms::has_distinct_vcpus(vm)?;
    if vm.vcpus.len() == 1 {
        return Err("it has 1 vCPU: nothing to divide".into());
    }
    if let Some((id, value)) = gang(places, vm) {
        return Err(format!(
            "the module gives it turns (coscheduling={value}), in which its vCPUs run at the same \
             time; to use weights instead: unspin set --vm {id} coscheduling=none"
        ));
    }
    for vcpu in &vm.vcpus {
        let class = places.host.scheduling_policy(vcpu.tid);
        let name = match class {
            None => return Err("it has ended".into()),
            Some(libc::SCHED_OTHER | libc::SCHED_BATCH) => continue,
            Some(libc::SCHED_FIFO | libc::SCHED_RR) => "a real-time class",
            Some(libc::SCHED_IDLE) => "the class SCHED_IDLE",
            Some(_) => "a class without weights",
        };
        return Err(format!("vCPU {} is in {name}: weights have no effect", vcpu.index));
    }
    Ok(())
}

/// The module's id of the VM, and its coscheduling, if it asks for turns as in unspin_settings_apply() of
/// the module.
fn gang(places: &Places, vm: &VmProcess) -> Option<(String, String)> {
    let module = Module::open(places.sysfs).ok()?;
    let ids = vms::ids_of(&module, places.host, vm).unwrap_or_default();
    ids.into_iter().find_map(|id| {
        let wait = Number::WAIT_FOR_TURNS.file();
        let mut files = module.vm_files(&id, &[COSCHEDULING, MODE, wait]);
        let is = |file: &str, value: &str| files.get(file).is_some_and(|is| is == value);
        let has_none = is(COSCHEDULING, Coscheduling::NONE.name())
            || is(MODE, Mode::OFF.name())
            || is(MODE, Mode::OBSERVE.name())
            || is(wait, "0");
        let value = files.remove(COSCHEDULING)?;
        (!has_none).then_some((id, value))
    })
}

fn is_of_version_2(host: &Host, vm: &VmProcess) -> Result<(), String> {
    let mut groups = vm.vcpus.iter().filter_map(|vcpu| host.cgroup(vcpu.tid));
    match groups.any(|group| group.version == Version::One) {
        true => Err("its CPU time is controlled by cgroups of version 1; weights need version 2 \
                     (systemd.unified_cgroup_hierarchy=1)"
            .into()),
        false => Ok(()),
    }
}

/// Fails if a quota limits it, because then weights alone do not decide its CPU time.
fn has_no_quota(places: &Places, vm: &VmProcess) -> Result<(), String> {
    let limits = places.groups.limits(&places.tree, vm.pid);
    if let Some((limit, _)) = tightest(&limits, vm.vcpus.len()) {
        return Err(format!(
            "its cgroup {} has a quota of {} CPUs (cpu.max), which limits its vCPUs besides weights",
            limit.group.path, limit.cpus
        ));
    }
    Ok(())
}

fn is_alone(tid: u32, dir: &Path) -> bool {
    let text = read_kernel_text(dir.join("cgroup.threads")).unwrap_or_default();
    let mut threads = text.split_whitespace();
    threads.next() == Some(&tid.to_string()) && threads.next().is_none()
}

/// The weights of a cgroup's children with tasks, by the cgroup. They are read once for all VMs, because each VM is
/// a sibling of others.
pub type Busy = BTreeMap<Cgroup, BTreeMap<Cgroup, f64>>;

fn busy_in(tree: &Tree, group: &Cgroup) -> BTreeMap<Cgroup, f64> {
    let children = tree.children(group).into_iter().filter(|child| tree.has_tasks(child));
    children.filter_map(|child| tree.weight(&child).map(|weight| (child, weight))).collect()
}

/// The CPUs due to a VM, at most as many as it has vCPUs, by its weight among those of sibling cgroups
/// with tasks.
fn due_cpus(
    places: &Places,
    allowed: &[BTreeSet<u32>],
    group: &Cgroup,
    is: u64,
    busy: &mut Busy,
) -> f64 {
    let cpus: BTreeSet<u32> = allowed.iter().flat_map(|cpus| usable(places, cpus)).collect();
    let beside = group.parent().map(|parent| {
        &*busy.entry(parent).or_insert_with_key(|parent| busy_in(&places.tree, parent))
    });
    let others = beside.into_iter().flatten().filter(|(other, _)| *other != group);
    let others: f64 = others.map(|(_, weight)| weight).sum();
    let due = cpus.len() as f64 * is as f64 / (is as f64 + others).max(1.0);
    due.min(allowed.len() as f64)
}

/// The weight of a cgroup, if the CPU controller is on for it.
fn weight(tree: &Tree, group: &Cgroup) -> Result<Weight, String> {
    let path = tree.dir(group).join("cpu.weight");
    let text = read_kernel_text(&path).map_err(|e| {
        format!("cannot read {}: {e} (the cpu controller is off there)", path.display())
    })?;
    match text.trim().parse() {
        Ok(is) if is > 0 && !tree.is_idle(group) => {
            Ok(Weight { target: Target::File { path }, is, text: text.trim().to_string() })
        }
        _ => Err(format!("{} has no weight (cpu.idle is set)", group.path)),
    }
}

/// A line about a VM that is not shaped, with the reason.
pub fn left_alone(vm: &VmProcess, why: &str) -> String {
    format!("{} is left alone: {why}", title(vm))
}
