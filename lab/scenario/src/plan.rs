// SPDX-License-Identifier: MIT OR Apache-2.0
//! The request to a machine: a scenario expanded into single runs, in order.

pub use crate::schema::arm::{
    ApleParams, Arm, Asym, Coscheduling, CoschedulingMechanism, Factor, Platform, Window, YieldTo,
};
pub use crate::schema::costs::HostCosts;
pub use crate::schema::host::{CgroupLayout, HostModel, HostScheduler, LoopDetection};
pub use crate::schema::linux::{GuestIdle, GuestLock, GuestProgram, LinuxGuest, LinuxVm};
pub use crate::schema::lock::{LockChoice, LockKind};
use crate::schema::names::is_default;
pub use crate::schema::names::PHYSICAL_ARM;
pub use crate::schema::program::{Dist, Op, Step};
pub use crate::schema::scenario::{Host, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use unspin_diagnosis::Cause;

/// Version of the plan and result formats; both sides refuse another.
pub const SCHEMA: u32 = 1;

/// Everything an agent needs to run one scenario on the computer it is on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub schema: u32,
    /// File name of the scenario without its ending.
    pub scenario: String,
    /// The description of the scenario, for people.
    #[serde(default)]
    pub title: String,
    /// SHA-256 over the scenario file and the profiles it names, in hex.
    pub scenario_hash: String,
    /// The host.
    #[serde(flatten)]
    pub host: Host,
    /// Where the files for Linux guests are on the computer that runs the plan; filled in by the
    /// program that starts it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxFiles>,
    pub runs: Vec<Run>,
}

/// Where the files for Linux guests are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinuxFiles {
    /// QEMU's program, and its firmware's directory if that is not QEMU's own.
    pub qemu: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Uncompressed kernels, by series.
    pub kernels: BTreeMap<String, String>,
    /// First file system of every guest.
    pub initramfs: String,
    /// Words for every guest's kernel that this machine makes necessary.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cmdline: String,
    /// How long a guest may take to boot, and then to follow a command, in the machine's time.
    #[serde(default = "patience_s")]
    pub patience_s: u64,
}

fn patience_s() -> u64 {
    60
}

/// One measurement: some VMs of one profile under one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Position in the scenario's whole plan; a resumed plan skips the ids it has records of. A
    /// selection or a share of a plan keeps the ids, so they may have gaps.
    pub id: u32,
    pub profile: String,
    /// The profile spins, and counts in means over such profiles.
    #[serde(default)]
    pub spin_intensive: bool,
    pub program: Vec<Step>,
    pub vms: u32,
    pub vcpus: u32,
    /// The description of each VM, if they differ; empty: all are as `profile`, `program`, `vcpus`,
    /// `lock` and `cpl` say, which otherwise belong to the first VM.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<EachVm>,
    /// Physical CPU of each vCPU of each VM, `pin[vm][vcpu]`; empty leaves them free.
    pub pin: Vec<Vec<u32>>,
    /// cgroup cpu.weight (1..=10000) of each VM; empty: all alike.
    pub weights: Vec<u32>,
    pub lock: LockKind,
    /// τ of the preemptable locks, ns; `None` leaves the lock's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tau_ns: Option<u64>,
    /// Where the scenario sweeps locks, the one this run is compared under ([`LockChoice::label`]); of
    /// Linux guests always theirs; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lock_group: String,
    /// Clock at which the locks' budgets, which are times, become cycles; `None` is the machine's
    /// time-stamp counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_clock_mhz: Option<u32>,
    /// Privilege level the guest spins at: 0 (PLE sees it) or 3 (it does not).
    pub cpl: u8,
    pub cgroup: CgroupLayout,
    pub arm: Arm,
    /// Length of an epoch in arms that adapt nothing but are watched (`observe`, `hvs`); `None`
    /// leaves the module's own.
    #[serde(default)]
    pub epoch_ple_exits: Option<u32>,
    /// The shortest epoch of such arms; `None` leaves the module's own.
    #[serde(default)]
    pub epoch_min_us: Option<u32>,
    /// Name of the arm this one is normalised to.
    pub baseline: String,
    pub seed: u64,
    pub repeat: u32,
    /// Least time between the start of the last VM and the measuring time, ms of the machine's time.
    pub warmup_ms: u64,
    /// Length of the measuring time, ms of the machine's time.
    pub window_ms: u64,
    /// Largest stagger between VM starts, ms; each VM draws its own from the seed.
    pub stagger_ms: u64,
    /// Whether the run exists to learn what one VM does alone (for *ideal*).
    pub alone: bool,
    /// Also collect the epoch tracepoint (window traces) and, if set, the pick tracepoint (replay).
    pub trace_epochs: bool,
    pub trace_picks: bool,
    /// Also count long waits by whether the lock was free meanwhile; guests wait a little slower.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stalls: bool,
    /// How often per second a task of the host wakes up on each pCPU in the measuring time; `None`:
    /// no such tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakeups_hz: Option<u32>,
    /// Number of tasks of the host that compute all the time, each on the next pCPU, from the first
    /// on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hogs: u32,
    /// Of a case, the causes that its VMs lose time to; `None`: it is no case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inject: Option<Vec<Cause>>,
    /// The vCPUs are watched in the window, as `unspin diagnose` does it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub states: bool,
    /// Linux guests, all alike, and their program, which then is in place of `program`, `lock` and
    /// `cpl`; `None`: this project's own guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxVm>,
}

/// One VM of a run whose VMs are not alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EachVm {
    /// VMs with one name are reported together, under it.
    pub group: String,
    /// Its workload.
    pub profile: String,
    #[serde(default)]
    pub spin_intensive: bool,
    pub program: Vec<Step>,
    pub vcpus: u32,
    pub lock: LockKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tau_ns: Option<u64>,
    pub cpl: u8,
    /// Threads of its program; `None`: one per vCPU, which never leaves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Timer ticks a second of its kernel; 0: it has none.
    #[serde(default)]
    pub tick_hz: u32,
    /// The module and the arm's lock are not for it: KVM's own window and yields, uncounted.
    #[serde(default)]
    pub mode_off: bool,
    /// Whether static coscheduling runs its vCPUs together; `None`: where its workload spins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang: Option<bool>,
    /// Whether asym of arms is for it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub role: Role,
    /// Its limit (cgroup cpu.max), in millionths of the host's CPU time; `None`: no quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_ppm: Option<u32>,
    /// As in [`Run`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxVm>,
}

impl Run {
    /// `vms` VMs that run `program` on `vcpus` vCPUs each, not pinned, with a ticket lock at CPL 0
    /// under KVM's own ways (arm `stock`, its own baseline), seed 1, measured for 100 ms from the
    /// start. Change other fields by `..Run::new(…)`.
    pub fn new(program: Vec<Step>, vms: u32, vcpus: u32) -> Run {
        Run {
            id: 0,
            profile: String::new(),
            spin_intensive: false,
            program,
            vms,
            vcpus,
            each: Vec::new(),
            pin: Vec::new(),
            weights: Vec::new(),
            lock: LockKind::Ticket,
            tau_ns: None,
            lock_group: String::new(),
            lock_clock_mhz: None,
            cpl: 0,
            cgroup: CgroupLayout::Flat,
            arm: Arm { name: "stock".into(), ..Arm::default() },
            epoch_ple_exits: None,
            epoch_min_us: None,
            baseline: "stock".into(),
            seed: 1,
            repeat: 0,
            warmup_ms: 0,
            window_ms: 100,
            stagger_ms: 0,
            alone: false,
            trace_epochs: false,
            trace_picks: false,
            stalls: false,
            wakeups_hz: None,
            hogs: 0,
            inject: None,
            states: false,
            linux: None,
        }
    }

    /// What VM number `vm` is.
    pub fn vm(&self, vm: u32) -> EachVm {
        self.each.get(vm as usize).cloned().unwrap_or_else(|| EachVm {
            group: self.profile.clone(),
            profile: self.profile.clone(),
            spin_intensive: self.spin_intensive,
            program: self.program.clone(),
            vcpus: self.vcpus,
            lock: self.lock,
            tau_ns: self.tau_ns,
            cpl: self.cpl,
            threads: None,
            tick_hz: 0,
            mode_off: false,
            gang: None,
            role: Role::default(),
            quota_ppm: None,
            linux: self.linux.clone(),
        })
    }

    /// Number of vCPUs of VM number `vm`.
    pub fn vcpus_of(&self, vm: u32) -> u32 {
        self.each.get(vm as usize).map_or(self.vcpus, |each| each.vcpus)
    }

    /// The quota of VM number `vm`, in millionths of the host's CPU time.
    pub fn quota_ppm_of(&self, vm: u32) -> Option<u32> {
        self.each.get(vm as usize)?.quota_ppm
    }

    /// Whether the module leaves VM number `vm` alone, whatever the arm says.
    pub fn is_off(&self, vm: u32) -> bool {
        self.each.get(vm as usize).is_some_and(|each| each.mode_off)
    }

    /// The Linux guest of VM number `vm`, if it is one.
    pub fn linux_of(&self, vm: u32) -> Option<&LinuxVm> {
        self.each.get(vm as usize).map_or(self.linux.as_ref(), |each| each.linux.as_ref())
    }

    /// The VMs' numbers of vCPUs, for people: `4`, or `8+4` if they differ.
    pub fn vcpus_text(&self) -> String {
        let mut sizes: Vec<u32> = Vec::new();
        for vm in 0..self.vms {
            let vcpus = self.vcpus_of(vm);
            if !sizes.contains(&vcpus) {
                sizes.push(vcpus);
            }
        }
        sizes.iter().map(u32::to_string).collect::<Vec<_>>().join("+")
    }

    /// Whether static coscheduling runs the vCPUs of VM number `vm` together.
    pub fn gangs(&self, vm: u32) -> bool {
        let each = self.each.get(vm as usize);
        each.map_or(self.spin_intensive, |each| each.gang.unwrap_or(each.spin_intensive))
    }

    /// What VM number `vm` is where arms make vCPUs asymmetric.
    pub fn role_of(&self, vm: u32) -> Role {
        self.each.get(vm as usize).map_or(Role::default(), |each| each.role)
    }

    /// Whether the arm makes the vCPUs of VM number `vm` asymmetric.
    pub fn is_shaped(&self, vm: u32) -> bool {
        self.arm.asym != Asym::default() && self.role_of(vm) == Role::Shaped
    }

    /// The arm for VM number `vm`: the arm itself, without coscheduling that is not for it; or
    /// KVM's own if the module leaves the VM alone.
    pub fn arm_of(&self, vm: u32) -> Arm {
        let arm = self.arm.clone();
        let is_off = self.is_off(vm);
        let is_alone = arm.coscheduling == Coscheduling::Con && !self.gangs(vm);
        let coscheduling = match is_off || is_alone {
            true => Coscheduling::None,
            false => arm.coscheduling,
        };
        match is_off {
            true => Arm {
                window: Window::Stock,
                yield_to: YieldTo::Stock,
                observe: false,
                lock: None,
                coscheduling,
                ..arm
            },
            false => Arm { coscheduling, ..arm },
        }
    }

    /// Names of the groups that are reported apart, in the order of their first VMs; one where all
    /// VMs are alike.
    pub fn groups(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for each in &self.each {
            if !names.contains(&each.group.as_str()) {
                names.push(&each.group);
            }
        }
        if names.is_empty() {
            vec![&self.profile]
        } else {
            names
        }
    }
}
