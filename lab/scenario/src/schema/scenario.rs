// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario once it is read: a host, its VMs, a workload, and the arms to compare.

use crate::schema::arm::Arm;
use crate::schema::costs::HostCosts;
use crate::schema::host::{CgroupLayout, HostModel, HostScheduler, LoopDetection};
use crate::schema::linux::{GuestLock, LinuxGuest};
use crate::schema::lock::LockChoice;
use crate::schema::names::{is_default, named, Named};
use serde::{Deserialize, Serialize};
use strum::{EnumIter, IntoStaticStr};
use unspin_diagnosis::Cause;

named!(Mode, Role, GuestKind, Beside);

/// A scenario, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// File name without its ending.
    pub name: String,
    pub title: String,
    /// Seed of the first repeat; the others follow it.
    pub seed: u64,
    pub repeats: u32,
    /// Length of an epoch where an arm does not say otherwise; `None` is the paper's 1000.
    pub epoch_ple_exits: Option<u32>,
    /// Shortest epoch where an arm does not say otherwise; `None` is the module's 10 ms.
    pub epoch_min_us: Option<u32>,
    /// Kernel series to run on (`6.1`, `6.12`); empty leaves it to the machine.
    pub kernels: Vec<String>,
    /// Emulated computers to share the runs among.
    pub boots: u32,
    pub host: Host,
    pub vms: Vec<VmGroup>,
    /// Cases that are run instead of the points of `sweep`, each with some of the VMs; empty: none.
    pub cases: Vec<Case>,
    pub arms: Vec<Arm>,
    /// Which arm the others are normalised to.
    pub baseline: usize,
    pub sweep: Sweep,
    pub measure: Measure,
    pub trace: Trace,
}

/// The host that a scenario wants, and that its plan asks a machine for. All keys but `pcpus` and
/// `slice_ns` are for machine `sim`; other machines are what they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Physical CPUs it must have.
    pub pcpus: u32,
    /// Length of a scheduler slice to set, ns (`base_slice_ns` / `min_granularity_ns` in debugfs); `None`
    /// leaves the kernel's own. In a scenario, a key beside the host's table.
    pub slice_ns: Option<u64>,
    #[serde(default, rename = "host_model", skip_serializing_if = "is_default")]
    pub model: HostModel,
    /// Clock by which the locks' budgets become cycles; `None`: the machine's own. Set in runs.
    #[serde(skip)]
    pub lock_clock_mhz: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub scheduler: HostScheduler,
    /// Its allocation period, ms: CFS's latency, Credit's assignments; `None` leaves the scheduler's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u32>,
    /// How its processor sees a loop of PAUSEs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub loop_detection: LoopDetection,
    /// Number of pCPUs that share a last-level cache; `None`: all share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_pcpus: Option<u32>,
    /// Threads of a core, each a pCPU: 1 or 2.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub threads_per_core: u32,
    /// How fast a thread works while the other one of its core is busy, %; `None`: the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_speed_percent: Option<u32>,
    /// Ticks of different pCPUs are spread in time (the kernel's skew_tick=1).
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub skew_tick: bool,
    /// VMs' weights are divided by the loads that their vCPUs last published, as in Linux 3.8 to
    /// 4.2, not by their present loads.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub group_load_lags: bool,
    /// Time that the host's own tasks take of each pCPU, millionths; `None`: the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub housekeeping_ppm: Option<u32>,
    /// What things cost there, in place of the model's own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub costs: HostCosts,
}

impl Host {
    /// A default host with this many pCPUs.
    pub fn new(pcpus: u32) -> Host {
        Host {
            pcpus,
            slice_ns: None,
            model: HostModel::default(),
            lock_clock_mhz: None,
            scheduler: HostScheduler::default(),
            period_ms: None,
            loop_detection: LoopDetection::default(),
            llc_pcpus: None,
            threads_per_core: 1,
            thread_speed_percent: None,
            skew_tick: true,
            group_load_lags: false,
            housekeeping_ppm: None,
            costs: HostCosts::default(),
        }
    }
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

fn one() -> u32 {
    1
}

fn is_one(value: &u32) -> bool {
    *value == 1
}

/// VMs that lose time to causes that are known beforehand.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub name: String,
    /// The causes; empty: there is none.
    pub inject: Vec<Cause>,
    /// Its VMs: numbers of `Scenario::vms`, some perhaps twice.
    pub vms: Vec<usize>,
    /// Number of its arm.
    pub arm: usize,
}

impl Named for Cause {
    fn choices() -> Vec<(&'static str, Cause)> {
        Cause::ALL.iter().map(|cause| (cause.name(), *cause)).collect()
    }
}

/// Some VMs that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct VmGroup {
    /// What its rows are called; `None`: as its workload.
    pub name: Option<String>,
    /// Its own workload; `None`: the swept one.
    pub workload: Option<String>,
    /// The module leaves these VMs alone in every arm.
    pub mode_off: bool,
    /// Whether static coscheduling runs its vCPUs together; `None`: as its workload says.
    pub gang: Option<bool>,
    pub role: Role,
    /// Threads of the program; `None`: one per vCPU.
    pub threads: Option<u32>,
    /// Timer ticks a second of the guests' kernel; 0: none.
    pub tick_hz: u32,
    pub count: u32,
    pub vcpus: u32,
    pub pin: Pin,
    /// cgroup cpu.weight; only its ratio to the other VMs' matters.
    pub weight: u32,
    /// cgroup cpu.max, in millionths of the host's CPU time; `None`: no quota.
    pub quota_ppm: Option<u32>,
    pub lock: LockChoice,
    pub cpl: u8,
    /// The guest, if it is Linux; `None`: this project's own, which runs profiles.
    pub linux: Option<LinuxGuest>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Pin {
    None,
    /// vCPU i of every VM on pCPU i.
    OnePerPcpu,
    /// vCPU i of every VM on the i-th of these.
    List(Vec<u32>),
}

/// What `mode` of a VM says: whether anything of an arm is for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Mode {
    Off,
    Arm,
}

/// The role of a VM in arms with asymmetric vCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// `unspin shape` shapes its vCPUs.
    #[default]
    Shaped,
    /// Not shaped; its figures show what shaping does to it.
    Neighbour,
    /// The same, for a VM that takes all the CPU time it can get.
    Hog,
}

/// What `guest` of a VM says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum GuestKind {
    Bench,
    Linux,
}

/// The values that every arm is run with.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    pub profiles: Vec<String>,
    pub vms: Vec<u32>,
    pub cgroups: Vec<CgroupLayout>,
    /// Each is compared separately; empty: only the VMs' lock.
    pub locks: Vec<LockChoice>,
    /// Locks of Linux guests, each compared separately; empty: only the VMs' own.
    pub guest_locks: Vec<GuestLock>,
    /// Who stands beside the VM that is shaped; `vms` then has the number of VMs of each.
    pub beside: Vec<Beside>,
    /// Names of groups whose VMs have their quota, one group at each point; empty: every group has its own.
    pub quota_on: Vec<String>,
}

/// The name of the point at which this group has its quota.
pub(crate) fn quota_point(group: &str) -> String {
    format!("quota-on-{group}")
}

/// The VMs beside the shaped one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Beside {
    /// The VMs with that role, which take all they can get.
    Hogs,
    /// As many VMs like it as there are hogs, itself among them.
    Alike,
    /// None.
    None,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    pub warmup_ms: u64,
    pub window_ms: u64,
    pub stagger_ms: u64,
    /// Adds runs of one VM with PLE off, from which *ideal* is computed.
    pub alone: bool,
    /// Wake-ups per second of tasks of the host, whose lateness is measured; `None`: no such tasks.
    pub wakeups_hz: Option<u32>,
    /// Tasks of the host that compute all the time.
    pub hogs: u32,
    /// The vCPUs are watched in the window.
    pub states: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    pub epochs: bool,
    pub picks: bool,
    pub stalls: bool,
}

/// The group of each VM where the VM that is shaped stands beside `who`.
pub(crate) fn vms_beside(groups: &[VmGroup], who: Beside) -> Vec<&VmGroup> {
    let of = |role| {
        let groups = groups.iter().filter(move |g| g.role == role);
        groups.flat_map(|g| std::iter::repeat_n(g, g.count as usize))
    };
    let shaped = of(Role::Shaped).take(1);
    match who {
        Beside::Hogs => shaped.chain(of(Role::Hog)).collect(),
        Beside::Alike => shaped.cycle().take(of(Role::Hog).count()).collect(),
        Beside::None => shaped.collect(),
    }
}

/// The cgroups of the hosts such VMs are run on.
pub(crate) fn usual_layout<'a>(mut groups: impl Iterator<Item = &'a VmGroup>) -> CgroupLayout {
    match groups.any(|g| g.linux.is_some()) {
        true => CgroupLayout::Libvirt,
        false => CgroupLayout::Flat,
    }
}

impl Scenario {
    /// Names of all profiles it needs.
    pub fn profile_names(&self) -> Vec<String> {
        self.workloads_of(|g| g.linux.is_none())
    }

    /// Names of all programs its Linux guests need.
    pub fn guest_program_names(&self) -> Vec<String> {
        self.workloads_of(|g| g.linux.is_some())
    }

    /// The workloads of the VMs of a kind: the swept one if one of them runs it, and their own.
    fn workloads_of(&self, is_of_kind: impl Fn(&VmGroup) -> bool) -> Vec<String> {
        let groups = || self.vms.iter().filter(|g| is_of_kind(g));
        let mut names = Vec::new();
        if groups().any(|g| g.workload.is_none()) {
            names.clone_from(&self.sweep.profiles);
        }
        for own in groups().filter_map(|g| g.workload.as_ref()) {
            if !names.contains(own) {
                names.push(own.clone());
            }
        }
        names
    }
}
