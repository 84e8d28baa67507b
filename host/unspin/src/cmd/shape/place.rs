// SPDX-License-Identifier: MIT OR Apache-2.0
//! What there is to set of a VM: weights, slices and CPUs of its vCPUs, or why it has none that may be set.

use super::nice;
use crate::cmd::diagnose::show::title;
use crate::sysfs::Module;
use crate::vms;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use unspin_host::journal::Target;
use unspin_host::{cpus, slice, Host, Version, VmProcess};
use unspin_uapi::Coscheduling;
use unspin_uapi::COSCHEDULING;

/// What is looked at.
pub struct Places<'a> {
    pub host: &'a Host,
    /// The module's directory; it is there if the module is loaded.
    pub sysfs: &'a Path,
    /// Where cgroups are: `/sys/fs/cgroup`.
    pub cgroups: &'a Path,
    /// Sets of CPUs between which no vCPU is moved.
    pub nodes: Vec<BTreeSet<u32>>,
    /// Whether vCPUs are moved that are pinned.
    pub moves_pinned: bool,
    /// The CPUs that are online, when it was looked last; none where that is not known.
    pub online: Option<BTreeSet<u32>>,
}

/// A VM whose vCPUs have weights.
#[derive(Debug, Clone)]
pub struct Placed {
    pub vm: VmProcess,
    /// That of each vCPU, in the order of `vm.vcpus`: of its cgroup, or by its nice value.
    pub vcpus: Vec<Weight>,
    /// How long the scheduler gives each of them at a stretch, in ns; none where the kernel does not let
    /// it be set.
    pub slices: Vec<u64>,
    /// `cpu.weight` of the cgroup that all of the VM, and nothing else, is in.
    pub whole: Option<Weight>,
    /// Its part of the CPUs that its vCPUs may use, by the weights of the cgroups beside its own; 0 where
    /// that is not known.
    pub due_cpus: f64,
    /// The CPUs that its vCPUs may be moved between, or why they are not moved, in words.
    pub cpus: Result<BTreeSet<u32>, String>,
    /// The CPUs that each of them may use now, those that are offline among them.
    pub allowed: Vec<BTreeSet<u32>>,
}

/// What a thread's or a cgroup's weight is set by, and what it is, 1 to 10000.
#[derive(Debug, Clone)]
pub struct Weight {
    pub target: Target,
    pub is: u64,
    /// How the target reads.
    pub text: String,
}

impl Placed {
    /// An error is why this VM's weights are not set, in words.
    pub fn of(places: &Places, vm: &VmProcess) -> Result<Placed, String> {
        is_fit(places, vm)?;
        let dirs: Vec<PathBuf> =
            vm.vcpus.iter().map(|vcpu| dir(places, vcpu.tid)).collect::<Result<_, _>>()?;
        let allowed: Vec<BTreeSet<u32>> =
            vm.vcpus.iter().map(|vcpu| places.host.allowed_cpus(vcpu.tid)).collect();
        let slice = |tid| slice::of(tid).ok().filter(|ns| *ns > 0);
        let slices = vm.vcpus.iter().map(|vcpu| slice(vcpu.tid)).collect::<Option<_>>();
        let placed = Placed {
            vm: vm.clone(),
            vcpus: Vec::new(),
            slices: slices.unwrap_or_default(),
            whole: None,
            due_cpus: 0.0,
            cpus: common_cpus(places, &allowed),
            allowed,
        };
        let each = vm.vcpus.iter().zip(&dirs).map(|(vcpu, dir)| is_alone(vcpu.tid, dir));
        match each.collect::<Result<Vec<bool>, _>>()?.iter().all(|is| *is) {
            true => placed.with_cgroups(places, &dirs),
            false => placed.with_nice_values(places, &dirs),
        }
    }

    /// Its vCPUs have a cgroup each.
    fn with_cgroups(self, places: &Places, dirs: &[PathBuf]) -> Result<Placed, String> {
        let parents: BTreeSet<&Path> = dirs.iter().filter_map(|dir| dir.parent()).collect();
        let parent = match parents.into_iter().collect::<Vec<_>>()[..] {
            [parent] => parent,
            _ => return Err("the cgroups of its vCPUs have different parents".into()),
        };
        let vcpus = dirs.iter().map(|dir| weight(dir)).collect::<Result<_, _>>()?;
        let whole_dir = whole(parent, places.cgroups);
        let whole = weight(whole_dir)?;
        let due_cpus = due_cpus(places, &self.allowed, whole_dir, whole.is);
        Ok(Placed { vcpus, whole: Some(whole), due_cpus, ..self })
    }

    /// They share one: the weights of threads follow from their nice values. Where the cgroup is the VM's
    /// alone, it has the VM's weight.
    fn with_nice_values(self, places: &Places, dirs: &[PathBuf]) -> Result<Placed, String> {
        let dirs: BTreeSet<&Path> = dirs.iter().map(|dir| whole(dir, places.cgroups)).collect();
        let whole_dir = match dirs.into_iter().collect::<Vec<_>>()[..] {
            [dir] if is_of_process(self.vm.pid, dir) => Some(dir),
            _ => None,
        };
        let whole = whole_dir.map(weight).transpose()?;
        let due_cpus = match (whole_dir, &whole) {
            (Some(dir), Some(whole)) => due_cpus(places, &self.allowed, dir, whole.is),
            _ => 0.0,
        };
        let of = |tid: u32| {
            let nice = places.host.nice(tid).ok_or("it has ended")?;
            let (is, text) = (nice::weight(nice), nice.to_string());
            Ok(Weight { target: Target::Nice { tid }, is, text })
        };
        let vcpus = self.vm.vcpus.iter().map(|vcpu| of(vcpu.tid)).collect::<Result<_, String>>()?;
        Ok(Placed { vcpus, whole, due_cpus, ..self })
    }
}

/// Those of the CPUs that are online.
fn usable(places: &Places, cpus: &BTreeSet<u32>) -> BTreeSet<u32> {
    cpus::usable(cpus, places.online.as_ref())
}

/// The CPUs that all its vCPUs may use; where those that are pinned are moved, too, that any of them may.
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

/// What the module and the scheduler say of it.
fn is_fit(places: &Places, vm: &VmProcess) -> Result<(), String> {
    match vm.vcpus.len() {
        0 => {
            return Err(
                "it does not name its vCPU threads; start QEMU with -name debug-threads=on".into()
            )
        }
        1 => return Err("it has 1 vCPU: nothing to divide".into()),
        _ => {}
    }
    let numbers: BTreeSet<u32> = vm.vcpus.iter().map(|vcpu| vcpu.index).collect();
    if numbers.len() < vm.vcpus.len() {
        return Err("2 of its vCPUs have the same number: its process has several VMs".into());
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

/// The module's id of the VM, and its coscheduling where that is not none.
fn gang(places: &Places, vm: &VmProcess) -> Option<(String, String)> {
    let module = Module::open(places.sysfs).ok()?;
    let ids = vms::ids_of(&module, places.host, vm).unwrap_or_default();
    ids.into_iter().find_map(|id| {
        let value = module.vm_files(&id, &[COSCHEDULING]).remove(COSCHEDULING)?;
        (value != Coscheduling::NONE.name()).then_some((id, value))
    })
}

/// The directory of the cgroup that controls a thread's CPU time.
fn dir(places: &Places, tid: u32) -> Result<PathBuf, String> {
    let cgroup = places.host.cgroup(tid).ok_or("its cgroup is unknown, or it has ended")?;
    if cgroup.version == Version::One {
        return Err("its CPU time is controlled by cgroups of version 1; weights need version 2 \
                    (systemd.unified_cgroup_hierarchy=1)"
            .into());
    }
    if let Some(quota) = cgroup.quota(places.cgroups) {
        return Err(format!(
            "its cgroup has a quota of {} CPUs (cpu.max), which limits its vCPUs besides weights",
            quota.cpus
        ));
    }
    Ok(cgroup.dir(places.cgroups))
}

/// Whether the cgroup has this thread and no other.
fn is_alone(tid: u32, dir: &Path) -> Result<bool, String> {
    let path = dir.join("cgroup.threads");
    let text =
        fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    Ok(text.split_whitespace().all(|thread| thread == tid.to_string()))
}

/// Whether the cgroup has this process and no other.
fn is_of_process(pid: u32, dir: &Path) -> bool {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let mut all = text.split_whitespace();
    all.next() == Some(&pid.to_string()) && all.next().is_none()
}

/// The cgroup that all of the VM is in: libvirt's scope, or the one around the vCPUs'.
fn whole<'a>(parent: &'a Path, root: &Path) -> &'a Path {
    let is_scope = |dir: &&Path| {
        let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("machine-") && name.ends_with(".scope")
    };
    let within = parent.ancestors().take_while(|dir| dir.starts_with(root));
    within.into_iter().find(is_scope).unwrap_or(parent)
}

/// A VM's part of the CPUs that it may use, no more than it has vCPUs: by its weight among those of the
/// cgroups beside it that have tasks.
fn due_cpus(places: &Places, allowed: &[BTreeSet<u32>], dir: &Path, is: u64) -> f64 {
    let cpus: BTreeSet<u32> = allowed.iter().flat_map(|cpus| usable(places, cpus)).collect();
    let has_tasks = |dir: &Path| {
        let events = fs::read_to_string(dir.join("cgroup.events")).unwrap_or_default();
        events.lines().any(|line| line == "populated 1")
    };
    let beside = dir.parent().and_then(|parent| fs::read_dir(parent).ok());
    let others: u64 = beside
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|other| other != dir && has_tasks(other))
        .filter_map(|other| weight(&other).ok())
        .map(|weight| weight.is)
        .sum();
    let due = cpus.len() as f64 * is as f64 / (is + others).max(1) as f64;
    due.min(allowed.len() as f64)
}

fn weight(dir: &Path) -> Result<Weight, String> {
    let path = dir.join("cpu.weight");
    let text = fs::read_to_string(&path).map_err(|e| {
        format!("cannot read {}: {e} (the cpu controller is off there)", path.display())
    })?;
    let idle = fs::read_to_string(dir.join("cpu.idle")).unwrap_or_default();
    match text.trim().parse() {
        Ok(is) if is > 0 && idle.trim() != "1" => {
            Ok(Weight { target: Target::File { path }, is, text: text.trim().to_string() })
        }
        _ => Err(format!("{} has no weight (cpu.idle is set)", dir.display())),
    }
}

/// A VM that is left alone, and why, in a line.
pub fn left_alone(vm: &VmProcess, why: &str) -> String {
    format!("{} is left alone: {why}", title(vm))
}
