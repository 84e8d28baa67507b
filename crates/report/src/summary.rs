// SPDX-License-Identifier: MIT OR Apache-2.0
//! summary.json: one document a scenario and kernel. Unknown values are null, never 0.

use crate::slowdown::SlowdownRow;
use crate::stalls::StallRow;
use serde::Serialize;
use std::collections::BTreeMap;
use unspin_scenario::plan::CgroupLayout;

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
    /// Long waits, where they were counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<StallRow>,
    /// What makes the VMs slower than the machine itself, where it was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slowdowns: Vec<SlowdownRow>,
    /// What was lost or left out.
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
    /// SHA-256, in hex, of the code the figures come from: module, policies, agent and guest.
    pub image: Option<String>,
    /// Computers booted (agents run) for it.
    pub boots: usize,
    /// All of them reached their end.
    pub complete: bool,
    pub runs: usize,
    pub seeds: Vec<u64>,
    /// Lengths of the runs' windows on the machine's clock, ms.
    pub window_ms: Vec<u64>,
    pub epoch_ple_exits: Vec<u32>,
    /// Shortest epochs in force, microseconds; 0: PLE exits alone ended an epoch.
    pub epoch_min_us: Vec<u32>,
    pub settings: BTreeMap<String, String>,
}

/// Share of the headroom an arm closes, pooled over the profiles that have any.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Headroom {
    pub vms: u32,
    pub cgroup: CgroupLayout,
    /// The lock compared under, where locks are swept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lock: String,
    pub arm: String,
    /// Σ(arm − baseline) ÷ Σ(ideal − baseline), in units of each profile's baseline.
    pub closed: Option<f64>,
    /// The same with the profiles for which the arm had not adapted.
    pub closed_all: Option<f64>,
    /// Σ(ideal − baseline) ÷ Σ ideal over the same profiles, or over all if none has headroom.
    pub stock_loss: Option<f64>,
    /// Profiles with at least 5 % headroom that count.
    pub profiles: Vec<String>,
    /// Those that would, but for which the arm had not adapted.
    pub not_adapted: Vec<String>,
}

/// Mean of an arm over the profiles that spin.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mean {
    pub vms: u32,
    pub cgroup: CgroupLayout,
    /// The lock compared under, where locks are swept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lock: String,
    pub arm: String,
    pub performance: Option<f64>,
    pub performance_low: Option<f64>,
    pub performance_high: Option<f64>,
    pub verdict: Option<&'static str>,
    /// Mean of the profiles' inefficiencies.
    pub inefficiency: Option<f64>,
    /// Both with the profiles for which the arm had not adapted.
    pub performance_all: Option<f64>,
    pub inefficiency_all: Option<f64>,
    pub profiles: Vec<String>,
    pub not_adapted: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Yields {
    pub resource_waiter: u64,
    pub lock_waiter: u64,
    pub yielded: u64,
    pub woken: u64,
    pub ipi_receiver: u64,
    pub none: u64,
    /// The core was left to the scheduler: too few siblings ran.
    pub gave_way: u64,
    pub failed: u64,
}

/// Where the time of the row's vCPUs went, as shares that add up to 1. Machine `sim` only.
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

/// Time of the row's vCPUs, all repeats, by what it is for, ns: the five factors of virtualization's
/// cost (NJIT 2018, chapter 2) and the rest. Adds up to the windows' lengths times the vCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CostNs {
    /// The program's own work.
    pub work_ns: u64,
    pub idle_switch_ns: u64,
    pub spin_switch_ns: u64,
    pub ipi_ns: u64,
    pub user_spin_ns: u64,
    /// Data from, and coming to, another last-level cache.
    pub cache_ns: u64,
    /// Spinning in the kernel.
    pub kernel_spin_ns: u64,
    /// Ticks, and switches to other VMs.
    pub other_host_ns: u64,
    pub halted_ns: u64,
    pub waiting_ns: u64,
}

/// PLE windows: over the epochs where they were traced, and at the end.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WindowCycles {
    pub min: Option<u64>,
    pub median: Option<u64>,
    pub max: Option<u64>,
    pub last: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WaitCycles {
    pub p50: Option<u64>,
    pub p99: Option<u64>,
    pub max: Option<u64>,
}

/// One arm at one profile, number of VMs and cgroup layout; all VMs, or one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub profile: String,
    pub vms: u32,
    pub vm_index: Option<u32>,
    pub cgroup: CgroupLayout,
    /// The lock compared under, where locks are swept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lock: String,
    pub arm: String,
    pub baseline: String,
    pub spin_intensive: bool,
    /// The arm a best or worst one is.
    pub same_as: Option<String>,
    pub repeats: usize,
    /// Ratio of the medians; bigger is better.
    pub performance: Option<f64>,
    /// Interval and ends of the ratios seed by seed.
    pub performance_low: Option<f64>,
    pub performance_high: Option<f64>,
    pub performance_min: Option<f64>,
    pub performance_max: Option<f64>,
    pub verdict: Option<&'static str>,
    pub throughput_per_s: Option<f64>,
    pub inefficiency: Option<f64>,
    pub inefficiency_min: Option<f64>,
    pub inefficiency_max: Option<f64>,
    /// Against the baseline's: −0.5 is half of it.
    pub inefficiency_change: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeShares>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostNs>,
    pub ple_exits: Option<u64>,
    /// TSC cycles from a PLE exit to the re-entry, less the time scheduled out; mean.
    pub exit_handling_cycles: Option<u64>,
    pub yields: Option<Yields>,
    pub picks_ran_next: Option<u64>,
    /// Of the yields that picked a vCPU.
    pub picks_ran_next_share: Option<f64>,
    pub window_cycles: WindowCycles,
    pub epoch_ple_exits: Option<u32>,
    pub epochs: Option<u64>,
    /// Fewest rounds of any VM in any repeat.
    pub rounds: Option<u64>,
    /// False: fewer than 10 rounds; such a row does not count in means. Null: nothing adapts.
    pub adapted: Option<bool>,
    pub wait_cycles: WaitCycles,
    /// Jain's index over the vCPUs of a VM, mean over VMs.
    pub fairness: Option<f64>,
    /// Over VMs, by their weights.
    pub fairness_vms: Option<f64>,
    /// CPU time of all vCPUs in a second of the window, s.
    pub cpus_used: Option<f64>,
    pub hypercalls_kick: Option<u64>,
    pub hypercalls_sched_yield: Option<u64>,
    pub fail_open_events: Option<u64>,
    /// Waits by power of two of cycles, all repeats together; for the pictures.
    #[serde(skip)]
    pub wait_hist: Vec<u64>,
    /// Ratio to the baseline of each repeat, for means.
    #[serde(skip)]
    pub ratios: BTreeMap<u32, f64>,
}

/// Where arms are compared, profile by profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub lock: String,
    pub cgroup: CgroupLayout,
    pub vms: u32,
}

impl Row {
    pub(crate) fn place(&self) -> Place {
        Place { lock: self.lock.clone(), cgroup: self.cgroup, vms: self.vms }
    }
}

impl Mean {
    pub(crate) fn place(&self) -> Place {
        Place { lock: self.lock.clone(), cgroup: self.cgroup, vms: self.vms }
    }
}
