// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contents of a report: one document per scenario and kernel, whose summary becomes
//! summary.json. Unknown values are null there, never 0.

use crate::diagnosis::Diagnosis;
use crate::one_vm::{Response, Share, Standing};
pub use crate::place::{Place, Point};
use crate::worlds::{Bands, OrderRow, WorldsMade};
use serde::Serialize;
use std::collections::BTreeMap;
use unspin_scenario::plan::CgroupLayout;
use unspin_scenario::result::EpochSample;

/// All results of one scenario on one kernel of one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub summary: Summary,
    pub traces: Vec<EpochTrace>,
    /// Designs of worlds and their outcomes: names of files without ending, and CSV.
    pub tables: Vec<(String, Vec<u8>)>,
}

/// The windows of one VM over time, from the first repeat that has them.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochTrace {
    pub at: Point,
    pub arm: String,
    pub vm: u32,
    pub samples: Vec<EpochSample>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub schema: u32,
    pub machine: String,
    pub scenario: String,
    pub title: String,
    pub kernel: String,
    pub provenance: Provenance,
    pub headroom: Vec<Headroom>,
    pub means: Vec<Mean>,
    pub arms: Vec<Row>,
    /// Long waits, if counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<StallRow>,
    /// The lateness of host tasks, if there were any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wakeups: Vec<WakeupRow>,
    /// What makes the VMs slower than the machine itself, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slowdowns: Vec<SlowdownRow>,
    /// Worlds from which bands were computed, by design, if unknown values of the scenario were drawn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub worlds: Vec<WorldsMade>,
    /// The order of the arms over worlds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<OrderRow>,
    /// Notes about lost or omitted results.
    pub notices: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Provenance {
    pub machine: String,
    pub kernel: String,
    pub scenario_hash: String,
    pub module: Option<String>,
    pub window_control: Option<String>,
    pub cpu_model: String,
    pub pcpus: u32,
    pub tsc_khz: Option<u64>,
    pub commit: Option<String>,
    pub version: Option<String>,
    /// SHA-256, in hex, of the code behind the figures: module, policies, agent and guest.
    pub image: Option<String>,
    /// Number of computers booted (agents run) for it.
    pub boots: usize,
    /// Whether all of them finished.
    pub complete: bool,
    pub runs: usize,
    pub seeds: Vec<u64>,
    /// Measuring times of the runs on the machine's clock, ms.
    pub window_ms: Vec<u64>,
    pub epoch_ple_exits: Vec<u32>,
    /// Shortest epochs, microseconds; 0: only PLE exits ended an epoch.
    pub epoch_min_us: Vec<u32>,
    pub settings: BTreeMap<String, String>,
}

/// Share of the headroom that an arm closes, over all profiles with headroom together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Headroom {
    #[serde(flatten)]
    pub place: Place,
    /// The lock of Linux guests under which arms are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_lock: Option<&'static str>,
    pub arm: String,
    /// Σ(arm − baseline) ÷ Σ(ideal − baseline), in units of each profile's baseline.
    pub closed: Option<f64>,
    /// The same; a separate key for programs that read it.
    pub closed_all: Option<f64>,
    /// Σ(ideal − baseline) ÷ Σ ideal over the same profiles; if there are none, over all except the
    /// unseen.
    pub stock_loss: Option<f64>,
    /// Profiles with at least 5 % headroom, without the unseen ones.
    pub profiles: Vec<String>,
    /// Programs of Linux guests with at least 5 % headroom that is not due to pause-loop exits:
    /// under the baseline these exits take less than 0.1 % of the CPU time. They are in no figure
    /// of this row, because a program that spins in user space can have fifteenfold headroom, and
    /// would dominate it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
    /// Profiles for which the arm adapts its window but never moved it.
    pub not_adapted: Vec<String>,
}

/// Mean of an arm over the profiles that spin.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mean {
    #[serde(flatten)]
    pub place: Place,
    pub arm: String,
    pub performance: Option<f64>,
    pub performance_low: Option<f64>,
    pub performance_high: Option<f64>,
    pub verdict: Option<&'static str>,
    /// Mean of the profiles' inefficiencies.
    pub inefficiency: Option<f64>,
    /// The same two; separate keys for programs that read them.
    pub performance_all: Option<f64>,
    pub inefficiency_all: Option<f64>,
    pub profiles: Vec<String>,
    /// Profiles for which the arm adapts its window but never moved it.
    pub not_adapted: Vec<String>,
}

/// One arm at one profile, number of VMs and cgroup layout; all VMs, or one. In the order of
/// summary.json and table.csv, where unknown values are null.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub key: Key,
    /// Only rows of one VM whose vCPUs were watched.
    #[serde(flatten)]
    pub diagnosis: Option<Diagnosis>,
    /// This and the next four are for Linux guests only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcpu_time: Option<VcpuTime>,
    /// The places of its vCPUs at pause-loop exits: those of all VMs of the run, also in the row of
    /// one VM or of one group. Empty without exits or without watching, and in the row of one VM if
    /// the run's VMs differ in kernel or lock.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spinners: Vec<Spinner>,
    /// The share of these exits at places with a name, 0 to 1. Exits at places that the record does
    /// not list have none. `None` without exits, and if `spinners` is left empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spinners_named: Option<f64>,
    /// The same as `spinners`, for interrupts of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interrupted: Vec<Spinner>,
    #[serde(flatten)]
    pub perf: Performance,
    /// Cycles of spinning up to PLE exits and of handling them, as a share of all CPU cycles. `None`
    /// if the module did not count, for `ideal`, and if the arm has no PLE.
    pub inefficiency: Option<f64>,
    pub inefficiency_min: Option<f64>,
    pub inefficiency_max: Option<f64>,
    /// Change from the baseline's: −0.5 is half of it.
    pub inefficiency_change: Option<f64>,
    /// Machine `sim` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeShares>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostNs>,
    /// The module's counts are medians over repeats. `None` if it did not count, and for `ideal`.
    pub ple_exits: Option<u64>,
    /// TSC cycles from a PLE exit to the re-entry, without the time scheduled out; mean.
    pub exit_handling_cycles: Option<u64>,
    /// The outcomes of PLE exits. `None` if KVM picks by itself.
    pub yields: Option<Yields>,
    pub picks_ran_next: Option<u64>,
    /// Share of the yields that picked a vCPU.
    pub picks_ran_next_share: Option<f64>,
    pub window_cycles: WindowCycles,
    pub epoch_ple_exits: Option<u32>,
    pub epochs: Option<u64>,
    /// Least number of rounds of APLE, of three epochs each, of any VM in any repeat.
    pub rounds: Option<u64>,
    /// Whether APLE moved the window of any VM in any repeat. `None`: nothing adapts, or unknown.
    pub adapted: Option<bool>,
    /// The arm changes only the window (APLE): KVM picks the targets of yields.
    #[serde(skip)]
    pub is_aple_alone: bool,
    pub wait_cycles: WaitCycles,
    /// Waits by power of two of cycles, all repeats together; for the pictures.
    #[serde(skip)]
    pub wait_hist: Vec<u64>,
    /// Jain's index over the vCPUs of a VM, mean over VMs.
    pub fairness: Option<f64>,
    /// Over VMs, by their weights.
    pub fairness_vms: Option<f64>,
    /// CPU time of all vCPUs per second of the measuring time, s.
    pub cpus_used: Option<f64>,
    /// Rows of one VM only.
    #[serde(flatten)]
    pub share: Option<Share>,
    /// For rows of several VMs in runs with hogs: CPU time of the hogs, as a share of one pCPU
    /// each, median over repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hog_cpu_share: Option<f64>,
    /// Share of the host's CPU time that was idle, median over repeats.
    pub host_idle_share: Option<f64>,
    #[serde(flatten)]
    pub turns: Turns,
    /// Only rows of one VM in arms with asymmetric vCPUs.
    #[serde(flatten)]
    pub standing: Option<Standing>,
    /// For programs whose passes begin with a timer, all repeats together.
    #[serde(flatten)]
    pub response: Option<Response>,
    pub hypercalls_kick: Option<u64>,
    pub hypercalls_sched_yield: Option<u64>,
    pub fail_open_events: Option<u64>,
    /// The distribution of the ratio to the baseline over worlds.
    #[serde(flatten)]
    pub bands: Option<Bands>,
}

/// A frequent place of vCPUs in the guest's kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spinner {
    /// A function, `user space`, or an address without a symbol.
    pub symbol: String,
    /// Share of all observed exits of the kind, including those at places that are not listed.
    pub share: f64,
}

/// Describes a Linux guest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GuestKind {
    /// `linux`.
    pub kind: &'static str,
    /// The kernel's release, as it reports it.
    pub kernel: String,
    /// Its spin-locks, by their name in scenarios.
    pub lock: &'static str,
}

/// Shares of the vCPUs' time, from the host's scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct VcpuTime {
    /// On a pCPU; without `polling`, if that is known.
    pub running: f64,
    /// On a pCPU while KVM polled for the end of a halt (`halt_poll_ns`). Missing unless it is
    /// known for each VM and repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub polling: Option<f64>,
    /// Ready to run, without a pCPU.
    pub waiting: f64,
    /// The rest.
    pub halted: f64,
    /// How often per second a vCPU released its pCPU, to halt or in a yield that found a target.
    pub halts_per_s: f64,
}

/// The subject of a row.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Key {
    pub profile: String,
    pub vms: u32,
    pub vm_index: Option<u32>,
    pub cgroup: CgroupLayout,
    /// The lock under which arms are compared, if locks are swept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lock: String,
    pub arm: String,
    pub baseline: String,
    pub spin_intensive: bool,
    /// For the best or the worst arm: the arm that it is.
    pub same_as: Option<String>,
}

/// Work, relative to the baseline's.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Performance {
    pub repeats: usize,
    /// Ratio of the medians; larger is better.
    pub performance: Option<f64>,
    /// Interval and range of the ratios of single seeds.
    pub performance_low: Option<f64>,
    pub performance_high: Option<f64>,
    pub performance_min: Option<f64>,
    pub performance_max: Option<f64>,
    pub verdict: Option<&'static str>,
    pub throughput_per_s: Option<f64>,
    /// Units of work that all VMs finished in the measuring time, median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_units: Option<u64>,
    /// Ratio to the baseline of each repeat, for means.
    #[serde(skip)]
    pub ratios: BTreeMap<u32, f64>,
}

/// Effects of the module's turns on VMs: their own turns and those of others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Turns {
    /// How often vCPUs waited for a turn of another VM, and how often a wait timed out; medians
    /// over repeats.
    pub parks: Option<u64>,
    pub parks_late: Option<u64>,
    /// The reason why a VM has no turns, from the first repeat with one.
    #[serde(rename = "turns_refused")]
    pub refused: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Yields {
    pub resource_waiter: u64,
    pub lock_waiter: u64,
    pub yielded: u64,
    pub woken: u64,
    pub none: u64,
    /// The core was left to the scheduler, because too few siblings ran.
    pub gave_way: u64,
    pub failed: u64,
}

/// PLE windows: over the traced epochs, and at the end.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WindowCycles {
    pub min: Option<u64>,
    pub median: Option<u64>,
    pub max: Option<u64>,
    pub last: Option<u64>,
}

/// Lengths of lock waits.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WaitCycles {
    pub p50: Option<u64>,
    pub p99: Option<u64>,
    pub max: Option<u64>,
}

/// How the time of the row's vCPUs was spent, as shares that add up to 1. Machine `sim` only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TimeShares {
    pub useful: f64,
    pub spin_holder_running: f64,
    pub spin_holder_preempted: f64,
    pub switch: f64,
    pub exit: f64,
    pub halted: f64,
    pub waiting: f64,
}

/// Time of the row's vCPUs, all repeats, by purpose, ns: the five factors of virtualization's cost
/// (NJIT 2018, chapter 2) and the rest. The sum is the measuring times multiplied by the vCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CostNs {
    /// The program's own work.
    pub work_ns: u64,
    pub idle_switch_ns: u64,
    pub spin_switch_ns: u64,
    pub ipi_ns: u64,
    pub user_spin_ns: u64,
    /// Data from another last-level cache, and moves to another one.
    pub cache_ns: u64,
    /// Spinning in the kernel.
    pub kernel_spin_ns: u64,
    /// Ticks, and switches to other VMs.
    pub other_host_ns: u64,
    pub halted_ns: u64,
    pub waiting_ns: u64,
}

/// The long waits of one arm at one point, all VMs and repeats together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StallRow {
    pub profile: String,
    pub vms: u32,
    pub lock: String,
    pub arm: String,
    /// N of table 1.
    pub acquisitions: u64,
    pub waits: Vec<StallCount>,
}

/// Waits that reached this many iterations of their loop, by the state of the lock at that moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StallCount {
    pub turns: u64,
    /// N_h and N_w of table 1.
    pub held: u64,
    pub free: u64,
    /// N_w ÷ (N_h + N_w); `None` without stalls.
    pub free_share: Option<f64>,
}

/// One arm at one profile, number of VMs and cgroup layout.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlowdownRow {
    #[serde(flatten)]
    pub at: Point,
    pub arm: String,
    /// Throughput of the program on the machine itself ÷ that of all VMs together − 1; null if VMs
    /// differ.
    pub slowdown: Option<f64>,
    /// In the order of the paper's sections.
    pub factors: Vec<FactorShare>,
    /// Spinning in the guests' kernels; ticks and switches to other VMs: shares of all vCPU time.
    pub kernel_spin: f64,
    pub other_host: f64,
    /// Ready without a pCPU: a share of all vCPU time.
    pub contention: f64,
    /// The largest cause, a factor or contention; `None` if none reaches
    /// [`unspin_diagnosis::DOMINANT_SHARE_MIN`].
    pub dominant: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FactorShare {
    /// `idle-switch`, `spin-switch`, `ipi`, `user-spin` or `cache`.
    pub factor: &'static str,
    /// Its share of all vCPU time.
    pub share: f64,
    /// Throughput without it ÷ throughput − 1: 0.1 is 10 % more. Null if it was already off.
    pub regained: Option<f64>,
}

/// Lateness of host tasks beside the VMs of one arm at one point, for the median repeat.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WakeupRow {
    #[serde(flatten)]
    pub at: Point,
    pub arm: String,
    pub baseline: String,
    /// Number of wake-ups of all repeats.
    pub count: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// The largest of all repeats.
    pub max_us: f64,
    /// `p99_us` ÷ that of the baseline; `None` if that is unknown or 0.
    pub p99_against_baseline: Option<f64>,
}

impl Row {
    /// The arm adapts its window, but never moved it.
    pub(crate) fn never_moved(&self) -> bool {
        self.adapted == Some(false)
    }
}

impl Key {
    pub(crate) fn place(&self) -> Place {
        Place { vms: self.vms, cgroup: self.cgroup, lock: self.lock.clone() }
    }

    pub(crate) fn point(&self) -> Point {
        Point { profile: self.profile.clone(), place: self.place() }
    }

    /// Whether it is over all VMs, not one of them.
    pub fn is_whole(&self) -> bool {
        self.vm_index.is_none()
    }
}
