// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cgroups of VMs' threads, and what follows from them: by whose weight a VM competes, with which other
//! VMs it shares that weight, and which quotas limit it.

use crate::{is_word, names, owner, placed, Cgroup, Host, Kind, Name, Tree, VmProcess};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SCATTERED: &str =
    "its threads are in several cgroups, and it is not known which of them run vCPUs";

/// The VMs of a host by their cgroups.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    vms: BTreeMap<u32, Arc<Threads>>,
    /// The VMs with vCPUs that have a thread in a cgroup or in a descendant of it.
    held: BTreeMap<Cgroup, BTreeSet<u32>>,
}

/// The threads of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Threads {
    /// The cgroup of each vCPU, by its number. If not all their threads are known, the smallest around all
    /// threads.
    vcpus: Vec<(u32, Cgroup)>,
    /// The cgroups of its VMM's other threads.
    others: BTreeSet<Cgroup>,
    /// Why a vCPU's cgroup is unknown, in words.
    unseen: Option<String>,
    /// Whether it is only known that the vCPUs' cgroups are inside the one in `vcpus`.
    is_scattered: bool,
    /// Whether there are vCPUs: a process without any takes no VM's CPU time.
    has_vcpus: bool,
}

/// Where a VM competes for CPU time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The cgroup whose weight decides: the nearest around all its vCPUs that has the CPU controller. If it
    /// is within a systemd scope or service, or a container, that belongs to the VM alone, that one. `None`:
    /// the root cgroup.
    pub group: Option<Cgroup>,
    /// Whether it belongs to the VM alone. Helpers in it (swtpm, virtiofsd, virt-launcher) count as
    /// the VM's.
    pub is_own: bool,
    /// The other VMs in it.
    pub beside: BTreeSet<u32>,
}

/// A quota that limits a thread of the VM.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    pub group: Cgroup,
    /// CPU time per period, in CPUs; above 0.
    pub cpus: f64,
    pub of: Limited,
}

/// The threads that a quota limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limited {
    /// All vCPUs together.
    Vm,
    /// Some vCPUs, by number.
    Vcpus(Vec<u32>),
    /// Only other threads of the VMM: libvirt's cgroups `emulator` and `iothreadN`.
    Others,
}

impl Groups {
    pub fn of(tree: &Tree, host: &Host, vms: &[VmProcess]) -> Groups {
        let mut groups = Groups::default();
        vms.iter().for_each(|vm| groups.renew(tree, host, vm));
        groups
    }

    /// Reads the cgroups of the VM's threads again.
    pub fn renew(&mut self, tree: &Tree, host: &Host, vm: &VmProcess) {
        self.forget(vm.pid);
        let threads = Arc::new(Threads::of(tree, host, vm));
        for group in threads.all().flat_map(Cgroup::upwards).filter(|_| threads.has_vcpus) {
            self.held.entry(group).or_default().insert(vm.pid);
        }
        self.vms.insert(vm.pid, threads);
    }

    /// Whether a VM's threads are still in the same cgroups; false for a new VM.
    pub fn is_same(&self, tree: &Tree, host: &Host, vm: &VmProcess) -> bool {
        self.vms.get(&vm.pid).is_some_and(|known| **known == Threads::of(tree, host, vm))
    }

    /// Keeps only these VMs.
    pub fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        let ended: Vec<u32> = self.vms.keys().copied().filter(|pid| !is_there(*pid)).collect();
        ended.into_iter().for_each(|pid| self.forget(pid));
    }

    fn forget(&mut self, pid: u32) {
        let Some(threads) = self.vms.remove(&pid) else { return };
        for group in threads.all().flat_map(Cgroup::upwards) {
            if let Some(held) = self.held.get_mut(&group) {
                held.remove(&pid);
                if held.is_empty() {
                    self.held.remove(&group);
                }
            }
        }
    }

    /// All VMs, by process id.
    pub fn vms(&self) -> impl Iterator<Item = u32> + '_ {
        self.vms.keys().copied()
    }

    /// Where a VM competes. The error is the reason, in words, why that is unknown.
    pub fn place(&self, tree: &Tree, pid: u32) -> Result<Place, String> {
        let threads = self.vms.get(&pid).ok_or("its cgroups were not looked at")?;
        let common = match (&threads.unseen, threads.common()) {
            (None, Some(common)) => common,
            (why, _) => return Err(why.clone().unwrap_or("its cgroups are unknown".into())),
        };
        let unit = common.upwards().find(|group| placed::is_whole(group.name()));
        let own = unit.filter(|unit| self.beside(unit, pid).is_empty());
        if threads.is_scattered && own.is_none() {
            return Err(SCATTERED.into());
        }
        let own = own.unwrap_or(common);
        let group = own.upwards().find(|group| tree.is_on(group));
        let beside = match &group {
            Some(group) => self.beside(group, pid),
            None => self.competing().filter(|other| *other != pid).collect(),
        };
        // An ancestor without the controller has other tasks, or may get them, and so has a session.
        let is_whole = group.as_ref() == Some(&own) && !placed::is_session(own.name());
        let is_own = is_whole && beside.is_empty();
        Ok(Place { group, is_own, beside })
    }

    /// The cgroups by whose weights its vCPUs compete: the nearest around each that has the CPU controller, or the root.
    pub fn of_vcpus(&self, tree: &Tree, pid: u32) -> BTreeSet<Cgroup> {
        let vcpus = self.vms.get(&pid).into_iter().flat_map(|threads| &threads.vcpus);
        let on = |of: &Cgroup| of.upwards().find(|group| tree.is_on(group) || group.is_root());
        vcpus.filter_map(|(_, of)| on(of)).collect()
    }

    /// The VMs with vCPUs.
    pub(crate) fn competing(&self) -> impl Iterator<Item = u32> + '_ {
        self.vms.iter().filter(|(_, threads)| threads.has_vcpus).map(|(pid, _)| *pid)
    }

    /// Whether a VM is in a cgroup.
    pub(crate) fn hold(&self, group: &Cgroup) -> bool {
        self.held.contains_key(group)
    }

    /// The root of the hierarchy in which the VM is.
    pub(crate) fn first(&self, pid: u32) -> Option<Cgroup> {
        let (_, of_vcpu) = self.vms.get(&pid)?.vcpus.first()?;
        of_vcpu.upwards().last()
    }

    /// This cgroup, and those of its descendants that have children with threads of the VM.
    pub(crate) fn inside(&self, pid: u32, group: &Cgroup) -> BTreeSet<Cgroup> {
        let threads = self.vms.get(&pid).into_iter().flat_map(|threads| threads.all());
        let ways = threads.flat_map(|of| of.upwards().skip(1));
        ways.filter(|of| group.holds(of)).collect()
    }

    /// The other VMs in a cgroup.
    fn beside(&self, group: &Cgroup, pid: u32) -> BTreeSet<u32> {
        let all = self.held.get(group).into_iter().flatten();
        all.copied().filter(|other| *other != pid).collect()
    }

    /// Every quota that limits a thread of the VM, those of outer cgroups first.
    pub fn limits(&self, tree: &Tree, pid: u32) -> Vec<Limit> {
        let Some(threads) = self.vms.get(&pid) else { return Vec::new() };
        let all: BTreeSet<Cgroup> = threads.all().flat_map(Cgroup::upwards).collect();
        let limit = |group: Cgroup| {
            let cpus = tree.quota_cpus(&group)?;
            let inside = threads.vcpus.iter().filter(|(_, of)| group.holds(of));
            let vcpus: Vec<u32> = inside.map(|(index, _)| *index).collect();
            let of = match vcpus.len() {
                0 if threads.is_scattered => return None,
                0 => Limited::Others,
                all if all == threads.vcpus.len() => Limited::Vm,
                _ => Limited::Vcpus(vcpus),
            };
            Some(Limit { group, cpus, of })
        };
        let mut limits: Vec<Limit> = all.into_iter().filter_map(limit).collect();
        limits.sort_by_key(|limit| limit.group.path.matches('/').count());
        limits
    }
}

impl Threads {
    fn of(tree: &Tree, host: &Host, vm: &VmProcess) -> Threads {
        let threads: BTreeSet<u32> = host.threads(vm.pid).into_iter().chain([vm.pid]).collect();
        if !vm.is_all_known() {
            let groups = threads.into_iter().map(|tid| tree.group(tid));
            return Threads { has_vcpus: vm.has_vcpus(), ..Threads::of_some(groups) };
        }
        let (mut vcpus, mut unseen) = (Vec::new(), None);
        for vcpu in &vm.vcpus {
            match tree.group(vcpu.tid) {
                Ok(group) => vcpus.push((vcpu.index, group)),
                Err(why) => unseen = Some(why),
            }
        }
        let is_vcpu = |tid: &u32| vm.vcpus.iter().any(|vcpu| vcpu.tid == *tid);
        let others = threads.into_iter().filter(|tid| !is_vcpu(tid));
        let others = others.filter_map(|tid| tree.group(tid).ok()).collect();
        Threads { vcpus, others, unseen, is_scattered: false, has_vcpus: true }
    }

    /// Threads that include vCPUs' threads, without knowing which.
    fn of_some(threads: impl Iterator<Item = Result<Cgroup, String>>) -> Threads {
        let (found, failed): (Vec<_>, Vec<_>) = threads.partition(Result::is_ok);
        let others: BTreeSet<Cgroup> = found.into_iter().flatten().collect();
        let around = |group: &Cgroup| others.iter().all(|of| group.holds(of));
        let common = others.first().and_then(|first| first.upwards().find(around));
        Threads {
            vcpus: common.map(|group| (0, group)).into_iter().collect(),
            unseen: failed.into_iter().find_map(Result::err).filter(|_| others.is_empty()),
            is_scattered: others.len() > 1,
            others,
            has_vcpus: true,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Cgroup> {
        self.vcpus.iter().map(|(_, group)| group).chain(&self.others)
    }

    /// The smallest cgroup around all vCPUs. If that is libvirt's for a vCPU, beside those of other threads, its
    /// parent.
    fn common(&self) -> Option<Cgroup> {
        let (_, first) = self.vcpus.first()?;
        let holds_all = |group: &Cgroup| self.vcpus.iter().all(|(_, of)| group.holds(of));
        let common = first.upwards().find(holds_all)?;
        let number = common.name().strip_prefix("vcpu");
        let is_of_vcpu = number.is_some_and(|number| number.parse::<u32>().is_ok());
        match is_of_vcpu && self.others.iter().any(|of| !common.holds(of)) {
            true => common.parent(),
            false => Some(common),
        }
    }
}

/// The quota that limits a VM of this many vCPUs first if all want CPU time, and the CPUs that remain. 0 vCPUs: their
/// number is unknown.
pub fn tightest(limits: &[Limit], vcpus: usize) -> Option<(&Limit, f64)> {
    let of_vcpus = limits.iter().filter(|limit| limit.of != Limited::Others).collect();
    let (cpus, first) = left(of_vcpus, if vcpus == 0 { usize::MAX } else { vcpus });
    Some((first?, cpus))
}

/// The CPUs that so many vCPUs can use together within these quotas of theirs, those of outer cgroups first; and the
/// quota that leaves its vCPUs least, if any does. A quota of the whole VM counts in full, also above 1 CPU per vCPU.
fn left(mut limits: Vec<&Limit>, vcpus: usize) -> (f64, Option<&Limit>) {
    let (mut cpus, mut free) = (0.0, vcpus);
    let mut first: Option<(f64, &Limit)> = None;
    while !limits.is_empty() {
        let outer = limits.remove(0);
        let (inner, others) = limits.into_iter().partition(|of| outer.group.holds(&of.group));
        let count = match &outer.of {
            Limited::Vcpus(numbers) => numbers.len(),
            Limited::Vm | Limited::Others => vcpus,
        };
        let (within, of_inner) = left(inner, count);
        let is_outer = outer.cpus <= within || of_inner.is_none();
        let limit = of_inner.filter(|_| !is_outer).unwrap_or(outer);
        let is_alone = outer.of == Limited::Vm && of_inner.is_none();
        let can = if is_alone { outer.cpus } else { within.min(outer.cpus) };
        let each = can / count as f64;
        if first.is_none_or(|(least, _)| each < least) {
            first = Some((each, limit));
        }
        (cpus, free, limits) = (cpus + can, free.saturating_sub(count), others);
    }
    (cpus + free as f64, first.map(|(_, limit)| limit))
}

impl Limit {
    /// How to raise it for a VM: a command or a file, depending on who created the cgroup.
    pub fn remedy(&self, vm: &VmProcess) -> String {
        let parts: Vec<&str> = self.group.path.split('/').skip(1).collect();
        let last = self.group.name();
        let vmid = last.strip_suffix(".scope").filter(|id| id.bytes().all(|b| b.is_ascii_digit()));
        let around = parts.split_last().map_or(&[][..], |(_, around)| around);
        // The host's commands do not know what is in a container.
        let is_inside = around.iter().any(|part| placed::is_container(part));
        let of_libvirt = parts.iter().find(|part| placed::is_libvirts(part) && !is_inside);
        match (parts.first(), vmid) {
            (Some(&"qemu.slice"), Some(id)) if !id.is_empty() => {
                return format!("qm set {id} --cpulimit CPUS");
            }
            _ if placed::is_in_pod(&parts) => {
                return "limits.cpu of its pod (KubeVirt: of the VirtualMachine)".into();
            }
            _ => {}
        }
        if let Some(part) = of_libvirt {
            let of = match last {
                "emulator" => "emulator_quota",
                _ if last.starts_with("iothread") => "iothread_quota",
                _ if last.starts_with("vcpu") => "vcpu_quota",
                _ => "global_quota",
            };
            // Without a connection virsh takes that of QEMU.
            let is_ch = part.starts_with("machine-ch") || part.ends_with(".libvirt-ch");
            let to = if is_ch { "-c ch:///system " } else { "" };
            return format!("virsh {to}schedinfo {} --live --set {of}=MICROSECONDS", domain(vm));
        }
        match is_inside {
            true => self.file(),
            false => self.of_engine_or_unit(last, around).unwrap_or_else(|| self.file()),
        }
    }

    fn file(&self) -> String {
        let file = match self.group.version {
            crate::Version::One => "cpu.cfs_quota_us",
            crate::Version::Two => "cpu.max",
        };
        format!("{file} of {}", self.group.path)
    }

    /// The command for a container or a unit of systemd with this name, in these cgroups; `None` if it is neither.
    fn of_engine_or_unit(&self, last: &str, around: &[&str]) -> Option<String> {
        let mut users = around.iter().filter_map(|part| part.strip_prefix("user@"));
        let user = users.next().and_then(|rest| rest.strip_suffix(".service"));
        let is_ours = |uid: &str| uid.parse().map_or(true, owner::is_ours);
        // Another user's podman has containers of its own.
        let engine = placed::engine(last, around).filter(|_| user.is_none_or(is_ours));
        if let Some((engine, id)) = engine {
            return Some(format!("{engine} update --cpus CPUS {}", &id[..names::ID_DIGITS]));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
        if !placed::is_of_systemd(last, around) || !last.chars().all(is_plain) {
            return None;
        }
        // For a shell.
        let unit = if last.contains('\\') { format!("'{last}'") } else { last.to_string() };
        let unit = if last.starts_with('-') { format!("-- {unit}") } else { unit };
        let manager = match user {
            None => String::new(),
            Some(uid) if is_ours(uid) => " --user".into(),
            Some(uid) => format!(" --user --machine={uid}@"),
        };
        Some(format!("systemctl{manager} set-property {unit} CPUQuota=PERCENT"))
    }
}

/// The name by which libvirt's commands know a VM, quoted for a shell. The name of its scope lacks some
/// characters of it, and its end if it is long.
fn domain(vm: &VmProcess) -> String {
    let text = |kind| vm.names.get(kind).map(Name::to_text).unwrap_or_default();
    let (given, of_scope) = (text(Kind::Name), text(Kind::Libvirt));
    let kept = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    let is_same = !given.is_empty() && kept(&given).starts_with(&kept(&of_scope));
    let name = if is_same || of_scope.is_empty() { given } else { of_scope };
    match !name.is_empty() && is_word(&name) {
        true => name,
        false => vm.uuid().unwrap_or("DOMAIN".into()),
    }
}
