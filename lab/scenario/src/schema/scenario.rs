// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario after parsing: a host, its VMs, a workload, and the arms to compare.

use crate::schema::arm::Arm;
use crate::schema::costs::HostCosts;
use crate::schema::host::{CgroupLayout, HostModel, HostScheduler, LoopDetection};
use crate::schema::linux::{GuestLock, LinuxGuest};
use crate::schema::lock::LockChoice;
use crate::schema::names::{is_default, named, Named};
use serde::{Deserialize, Serialize};
use strum::{EnumIter, IntoStaticStr};
use unspin_diagnosis::Cause;
use unspin_text::names::distinct;

named!(Mode, Role, GuestKind, Beside);

/// A scenario, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// File name without its ending.
    pub name: String,
    pub title: String,
    /// Seed of the first repeat; the other repeats use the following seeds.
    pub seed: u64,
    pub repeats: u32,
    /// Length of an epoch in arms that do not set it; `None`: the paper's 1000.
    pub epoch_ple_exits: Option<u32>,
    /// Shortest epoch in arms that do not set it; `None`: the module's 10 ms.
    pub epoch_min_us: Option<u32>,
    /// Kernel series to run on (`6.1`, `6.12`); empty: the machine's default.
    pub kernels: Vec<String>,
    /// Number of emulated computers that share the runs.
    pub boots: u32,
    pub host: Host,
    pub vms: Vec<VmGroup>,
    /// Cases that are run instead of the points of `sweep`, each with some of the VMs; empty: none.
    pub cases: Vec<Case>,
    pub arms: Vec<Arm>,
    /// Index of the arm to which the others are normalised.
    pub baseline: usize,
    pub sweep: Sweep,
    pub measure: Measure,
    pub trace: Trace,
}

/// The host that a scenario needs, and that its plan requests from a machine. All keys except
/// `pcpus` and `slice_ns` are for machine `sim`; other machines have a fixed host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Physical CPUs it must have.
    pub pcpus: u32,
    /// Length of a scheduler slice to set, ns (`base_slice_ns` / `min_granularity_ns` in debugfs);
    /// `None`: the kernel's own. In a scenario, a key outside of the host's table.
    pub slice_ns: Option<u64>,
    #[serde(default, rename = "host_model", skip_serializing_if = "is_default")]
    pub model: HostModel,
    /// Clock rate that converts the locks' budgets to cycles; `None`: the machine's own. Set in
    /// runs.
    #[serde(skip)]
    pub lock_clock_mhz: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub scheduler: HostScheduler,
    /// Its allocation period, ms: CFS's latency, Credit's assignments; `None`: the scheduler's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u32>,
    /// How its processor detects PAUSE loops.
    #[serde(default, skip_serializing_if = "is_default")]
    pub loop_detection: LoopDetection,
    /// Number of pCPUs that share a last-level cache; `None`: all share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_pcpus: Option<u32>,
    /// Threads of a core, each a pCPU: 1 or 2.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub threads_per_core: u32,
    /// Speed of a thread while the other one of its core is busy, %; `None`: the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_speed_percent: Option<u32>,
    /// Ticks of different pCPUs are spread in time (the kernel's skew_tick=1).
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub skew_tick: bool,
    /// Whether VMs' weights are divided by the loads that their vCPUs last published, as in Linux
    /// 3.8 to 4.2, instead of their present loads.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub group_load_lags: bool,
    /// Time of each pCPU that host tasks use, millionths; `None`: the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub housekeeping_ppm: Option<u32>,
    /// Costs that replace the model's own.
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

/// VMs that lose time to known causes.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub name: String,
    /// The causes; empty: none.
    pub inject: Vec<Cause>,
    /// Its VMs: indices into `Scenario::vms`, possibly repeated.
    pub vms: Vec<usize>,
    /// Index of its arm.
    pub arm: usize,
}

impl Named for Cause {
    fn choices() -> Vec<(&'static str, Cause)> {
        Cause::ALL.iter().map(|cause| (cause.name(), *cause)).collect()
    }
}

/// A group of identical VMs.
#[derive(Debug, Clone, PartialEq)]
pub struct VmGroup {
    /// The name of its rows; `None`: that of its workload.
    pub name: Option<String>,
    /// Its own workload; `None`: the swept one.
    pub workload: Option<String>,
    /// The module leaves these VMs alone in every arm.
    pub mode_off: bool,
    /// Whether static coscheduling runs its vCPUs together; `None`: if its workload spins.
    pub gang: Option<bool>,
    pub role: Role,
    /// Threads of the program; `None`: one per vCPU.
    pub threads: Option<u32>,
    /// Timer ticks per second of the guests' kernel; 0: none.
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
    /// vCPU i of every VM is on pCPU i.
    OnePerPcpu,
    /// vCPU i of every VM is on the i-th of these.
    List(Vec<u32>),
}

/// The key `mode` of a VM: whether arms apply to it.
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
    /// Not shaped; its figures show how shaping affects it.
    Neighbour,
    /// The same, for a VM that takes all the CPU time it can get.
    Hog,
}

/// The key `guest` of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum GuestKind {
    Bench,
    Linux,
}

/// The points at which every arm runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    pub profiles: Vec<String>,
    pub vms: Vec<u32>,
    pub cgroups: Vec<CgroupLayout>,
    /// Each is compared separately; empty: only the VMs' lock.
    pub locks: Vec<LockChoice>,
    /// Locks of Linux guests, each compared separately; empty: only the VMs' own.
    pub guest_locks: Vec<GuestLock>,
    /// The neighbours of the shaped VM. `vms` then has the number of VMs of each kind.
    pub beside: Vec<Beside>,
    /// Names of groups, of which one per point has its quota; empty: every group has its own.
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
    /// The VMs with that role, which use all the CPU time they can get.
    Hogs,
    /// VMs like the shaped one, as many as there are hogs, itself included.
    Alike,
    /// No neighbours.
    None,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    pub warmup_ms: u64,
    pub window_ms: u64,
    pub stagger_ms: u64,
    /// Adds runs of one VM with PLE off, from which *ideal* is computed.
    pub alone: bool,
    /// Wake-ups per second of host tasks whose lateness is measured; `None`: no such tasks.
    pub wakeups_hz: Option<u32>,
    /// Number of host tasks that compute all the time.
    pub hogs: u32,
    /// Record the states of the vCPUs in the measuring time.
    pub states: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    pub epochs: bool,
    pub picks: bool,
    pub stalls: bool,
}

/// The group of each VM if the shaped VM has the neighbours `who`.
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

/// The usual cgroup layout of hosts with such VMs.
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
        let swept = groups().any(|g| g.workload.is_none()).then_some(&self.sweep.profiles);
        let own = groups().filter_map(|g| g.workload.as_ref());
        distinct(swept.into_iter().flatten().chain(own).cloned())
    }
}
