// SPDX-License-Identifier: MIT OR Apache-2.0
//! The request to a machine: a scenario expanded into single runs, in order.

pub use crate::schema::arm::{
    ApleParams, Arm, Asym, Coscheduling, CoschedulingMechanism, Factor, Platform, Window, YieldTo,
};
pub use crate::schema::costs::HostCosts;
pub use crate::schema::host::{CgroupLayout, HostModel, HostScheduler, LoopDetection};
pub use crate::schema::linux::{
    GuestIdle, GuestLock, GuestProgram, LinuxGuest, LinuxVm, LOCKS_KERNEL, LOCKS_SERIES,
};
pub use crate::schema::lock::{LockChoice, LockKind};
use crate::schema::names::is_default;
pub use crate::schema::names::PHYSICAL_ARM;
pub use crate::schema::program::{Dist, Op, Step, Waits};
pub use crate::schema::scenario::{Host, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use unspin_diagnosis::Cause;
use unspin_text::names::distinct;

/// Version of the plan and result formats. Both sides refuse other versions.
pub const SCHEMA: u32 = 1;

/// Everything that an agent needs to run one scenario on its computer.
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
    /// The directories for Linux guests on the computer that runs the plan; filled in by the
    /// program that starts the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxFiles>,
    pub runs: Vec<Run>,
}

/// Compiled once, here: a crate that calls `serde_json` with a plan compiles the code for all types
/// in it again, which takes seconds.
impl Plan {
    /// Without line breaks.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a plan is plain data")
    }

    /// # Errors
    /// The text is not JSON, or not a plan.
    pub fn from_json(json: &[u8]) -> serde_json::Result<Plan> {
        serde_json::from_slice(json)
    }
}

/// The files for Linux guests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinuxFiles {
    /// QEMU's program, and its firmware's directory if that is not QEMU's own.
    pub qemu: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Uncompressed kernels, by their names ([`LinuxGuest::kernel`]).
    pub kernels: BTreeMap<String, String>,
    /// The first file system of every guest.
    pub initramfs: String,
    /// Kernel parameters that every guest on this machine needs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cmdline: String,
    /// Limit of the time in which a guest boots, and then follows a command, in the machine's time.
    #[serde(default = "patience_s")]
    pub patience_s: u64,
}

fn patience_s() -> u64 {
    60
}

/// One measurement: some VMs under one arm. `form.rs` has its written form.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Index in the scenario's whole plan. A resumed plan skips ids that have records. A selection
    /// or a share of a plan keeps the ids, so they may have gaps.
    pub id: u32,
    /// Name of the point at which arms are compared: the workload, if that is swept.
    pub profile: String,
    pub vms: Vec<Vm>,
    /// If the scenario sweeps locks, the lock under which this run is compared
    /// ([`LockChoice::label`]). For Linux guests always their lock; otherwise empty.
    pub lock_group: String,
    /// Clock rate that converts the locks' budgets, which are times, to cycles; `None`: that of the
    /// machine's time-stamp counter.
    pub lock_clock_mhz: Option<u32>,
    pub cgroup: CgroupLayout,
    pub arm: Arm,
    /// Length of an epoch in arms that are watched without adapting anything (`observe`, `hvs`);
    /// `None`: the module's own.
    pub epoch_ple_exits: Option<u32>,
    /// The shortest epoch of such arms; `None` leaves the module's own.
    pub epoch_min_us: Option<u32>,
    /// Name of the arm to which this one is normalised.
    pub baseline: String,
    pub seed: u64,
    pub repeat: u32,
    /// Shortest time from the start of the last VM to the measuring time, ms of the machine's time.
    pub warmup_ms: u64,
    /// Length of the measuring time, ms of the machine's time.
    pub window_ms: u64,
    /// Longest delay between VM starts, ms; each VM draws its own from the seed.
    pub stagger_ms: u64,
    /// Whether the run is of one VM alone, for *ideal*.
    pub alone: bool,
    /// Also collect the epoch tracepoint (window traces) and, if set, the pick tracepoint (replay).
    pub trace_epochs: bool,
    pub trace_picks: bool,
    /// Also count long waits by whether the lock was free meanwhile. Guests then wait a little
    /// slower.
    pub stalls: bool,
    /// Wake-ups per second of a host task on each pCPU during the measuring time; `None`: no such
    /// tasks.
    pub wakeups_hz: Option<u32>,
    /// Number of host tasks that compute all the time, on the first pCPU, the second, and so on.
    pub hogs: u32,
    /// For a case, the causes to which its VMs lose time; `None`: not a case.
    pub inject: Option<Vec<Cause>>,
    /// Record the states of the vCPUs in the measuring time, as `unspin diagnose` does.
    pub states: bool,
}

/// One VM of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    /// VMs with the same name are reported together, under it. Empty: all VMs are reported under the
    /// run's name.
    pub group: String,
    /// Name of its workload; empty: the run's name.
    pub profile: String,
    /// Whether the workload spins, and counts in means over such workloads.
    #[serde(default)]
    pub spin_intensive: bool,
    pub program: Vec<Step>,
    pub vcpus: u32,
    pub lock: LockKind,
    /// τ of the preemptable locks, ns; `None`: the lock's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tau_ns: Option<u64>,
    /// How long a waiter of pv-ticket spins before it halts, ns; `None`: the lock's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spin_ns: Option<u64>,
    /// Privilege level at which the guest spins: 0 (visible to PLE) or 3 (not visible).
    pub cpl: u8,
    /// Threads of its program; `None`: one per vCPU, which never leaves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Timer ticks per second of its kernel; 0: none.
    #[serde(default)]
    pub tick_hz: u32,
    /// Neither the module nor the arm's lock applies to it: KVM's own window and yields, without
    /// counts.
    #[serde(default)]
    pub mode_off: bool,
    /// Whether static coscheduling runs its vCPUs together; `None`: if its workload spins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang: Option<bool>,
    /// Its role in arms with asym.
    #[serde(default, skip_serializing_if = "is_default")]
    pub role: Role,
    /// Its limit (cgroup cpu.max), in millionths of the host's CPU time; `None`: no quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_ppm: Option<u32>,
    /// A Linux guest and its program, which replaces `program`, `lock` and `cpl`; `None`: this project's
    /// own guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxVm>,
    /// Physical CPU of each vCPU; empty: not pinned.
    #[serde(skip)]
    pub pin: Vec<u32>,
    /// cgroup cpu.weight, 1 to 10000; `None` in all VMs of a run: all have the same weight.
    #[serde(skip)]
    pub weight: Option<u32>,
}

impl Vm {
    /// A VM that runs `program` on `vcpus` vCPUs, not pinned, with a ticket lock at CPL 0.
    pub const fn new(program: Vec<Step>, vcpus: u32) -> Vm {
        Vm {
            group: String::new(),
            profile: String::new(),
            spin_intensive: false,
            program,
            vcpus,
            lock: LockKind::Ticket,
            tau_ns: None,
            spin_ns: None,
            cpl: 0,
            threads: None,
            tick_hz: 0,
            mode_off: false,
            gang: None,
            role: Role::Shaped,
            quota_ppm: None,
            linux: None,
            pin: Vec::new(),
            weight: None,
        }
    }

    /// Whether static coscheduling runs its vCPUs together.
    pub fn gangs(&self) -> bool {
        self.gang.unwrap_or(self.spin_intensive)
    }

    /// What the form of a program (`form.rs`) restores of it. CPUs and weight are written for each VM.
    fn shared(&self) -> Vm {
        Vm {
            spin_intensive: self.spin_intensive,
            lock: self.lock,
            tau_ns: self.tau_ns,
            spin_ns: self.spin_ns,
            cpl: self.cpl,
            linux: self.linux.clone(),
            ..Vm::new(self.program.clone(), self.vcpus)
        }
    }

    /// Its lock, if it is not a Linux guest.
    pub fn lock_choice(&self) -> LockChoice {
        LockChoice { kind: self.lock, tau_ns: self.tau_ns, spin_ns: self.spin_ns }
    }
}

impl Run {
    /// `vms` VMs that run `program` on `vcpus` vCPUs each ([`Vm::new`]) under arm `stock`, which is its
    /// own baseline, with seed 1, measured for 100 ms from the start. Change other fields by
    /// `..Run::new(…)`, and the VMs by [`Run::with`].
    pub fn new(program: Vec<Step>, vms: u32, vcpus: u32) -> Run {
        Run {
            id: 0,
            profile: String::new(),
            vms: vec![Vm::new(program, vcpus); vms as usize],
            lock_group: String::new(),
            lock_clock_mhz: None,
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
        }
    }

    /// The same run with each VM changed.
    pub fn with(mut self, change: impl Fn(&mut Vm)) -> Run {
        self.vms.iter_mut().for_each(change);
        self
    }

    /// The same run with weight `weights[n]` for VM number *n*.
    pub fn weighted(mut self, weights: &[u32]) -> Run {
        for (vm, weight) in self.vms.iter_mut().zip(weights) {
            vm.weight = Some(*weight);
        }
        self
    }

    /// The number of VMs.
    pub fn vm_count(&self) -> u32 {
        self.vms.len() as u32
    }

    /// Whether vCPUs of any VM are pinned.
    pub fn is_pinned(&self) -> bool {
        self.vms.iter().any(|vm| !vm.pin.is_empty())
    }

    /// The first VM, which represents all if they are alike; a VM without vCPUs if there is none.
    pub fn first(&self) -> &Vm {
        static NONE: Vm = Vm::new(Vec::new(), 0);
        self.vms.first().unwrap_or(&NONE)
    }

    /// Whether the VMs differ only in their CPUs and weights, and none has a name.
    pub fn is_of_alike(&self) -> bool {
        let shared = self.first().shared();
        let is_shared =
            |vm: &Vm| *vm == Vm { pin: vm.pin.clone(), weight: vm.weight, ..shared.clone() };
        self.vms.iter().all(is_shared)
    }

    /// The VMs' numbers of vCPUs, for people: `4`, or `8+4` if they differ.
    pub fn vcpus_text(&self) -> String {
        let sizes = distinct(self.vms.iter().map(|vm| vm.vcpus));
        sizes.iter().map(u32::to_string).collect::<Vec<_>>().join("+")
    }

    /// Whether the arm makes the VM's vCPUs asymmetric.
    pub fn is_shaped(&self, vm: &Vm) -> bool {
        self.arm.asym != Asym::default() && vm.role == Role::Shaped
    }

    /// The arm as it applies to one of the VMs: without coscheduling that does not apply, or KVM's own
    /// if the module leaves the VM alone.
    pub fn arm_of(&self, vm: &Vm) -> Arm {
        let arm = self.arm.clone();
        let is_alone = arm.coscheduling == Coscheduling::Con && !vm.gangs();
        let coscheduling = match vm.mode_off || is_alone {
            true => Coscheduling::None,
            false => arm.coscheduling,
        };
        match vm.mode_off {
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

    /// Names of the groups that are reported separately, in the order of their first VMs; the run's name
    /// for VMs without one.
    pub fn groups(&self) -> Vec<&str> {
        let mut names = distinct(self.vms.iter().map(|vm| match vm.group.as_str() {
            "" => self.profile.as_str(),
            group => group,
        }));
        if names.is_empty() {
            names.push(&self.profile);
        }
        names
    }
}
