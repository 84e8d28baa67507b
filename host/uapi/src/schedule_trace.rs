// SPDX-License-Identifier: MIT OR Apache-2.0
//! The format of a trace of `unspin schedule`: lines of JSON, first a [`Begin`], then [`Line`]s.

use serde::{Deserialize, Serialize};

/// `trace` of the first line: the kind of file.
pub const TRACE: &str = "unspin schedule";
/// The version of the format.
pub const SCHEMA: u32 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    /// [`TRACE`].
    pub trace: String,
    /// [`SCHEMA`].
    pub schema: u32,
    /// The version of unspin.
    pub version: String,
    /// The kernel's release.
    pub kernel: String,
    /// The CPUs of --cpus.
    pub cpus: String,
    /// Length of a gang's turn, in microseconds.
    pub turn_us: u64,
}

/// A line after the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    Vm(Vm),
    Next(Next),
    Turn(Turn),
    Yield(Yield),
    /// The number of decisions between the previous line of this kind and this one that are missing, because they came
    /// faster than they were written.
    Lost(u64),
    /// The last line: how many decisions the trace has, and how many were lost. It is missing if the command was
    /// killed or could not write.
    End {
        decisions: u64,
        lost: u64,
    },
}

/// A VM that is taken, or whose settings have changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    /// The number by which decisions name the VM, from 1. If the VM is given back, another may get it.
    pub number: u32,
    /// The process ID.
    pub process: u32,
    pub name: String,
    pub vcpus: u32,
    /// Percent of the CPU time if all VMs want as much as they can get.
    pub share: f64,
    /// When its vCPUs run together, as in the JSON of `unspin schedule`.
    pub gang: String,
}

/// A VM's number and one of its units: a vCPU, or 63 for all its other threads. VM 0 stands for all tasks of SCHED_EXT
/// that belong to no VM.
pub type Unit = (u8, u8);

/// Which unit runs next on a CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Next {
    /// CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    pub cpu: u32,
    /// The unit that ran there and could continue.
    pub before: Option<Unit>,
    /// The virtual time of the VM that is owed most.
    pub vnow: u64,
    /// The candidates, at most one per VM.
    pub of: Vec<Candidate>,
    /// The unit that was chosen.
    pub is: Option<Unit>,
}

/// A VM's unit that could run next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    pub unit: Unit,
    /// The virtual time of its VM.
    pub vt: u64,
    /// Whether it is a vCPU that is owed more than a turn by itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub owed: bool,
    /// Whether it is a vCPU of a gang.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gang: bool,
}

/// Which VM is next in a plan, and what it gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// How many CPUs the VMs before it in the plan have left.
    pub left: u32,
    /// The candidates.
    pub of: Vec<Ready>,
    /// The number of the VM that was chosen.
    pub is: Option<u8>,
    /// How many CPUs that VM needs.
    pub needs: u64,
    pub then: Then,
}

/// A VM with ready units.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    pub vm: u8,
    pub vt: u64,
    /// Whether it is a gang with a vCPU that is owed more than a turn by itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub owed: bool,
}

/// What a VM gets in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// It is not a gang: CPUs are kept free for those of its vCPUs that may use only some CPUs.
    Holds,
    /// A gang has its turn.
    Begins,
    /// Fewer CPUs are left than it needs.
    Waits,
    /// Its vCPUs cannot run together on the CPUs that are left.
    Apart,
}

/// Which vCPU gets the CPU of a sibling that spins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Yield {
    /// CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    pub cpu: u32,
    /// The vCPU that spins.
    pub caller: Unit,
    /// A bit for each vCPU that may not run there, has another CPU in this turn, or was tried before.
    pub excluded: u64,
    /// The flags of hvs_pick().
    pub flags: u32,
    /// The result of hvs_pick(): a vCPU, or a negative number (core/policy/hvs.h).
    pub pick: i32,
    /// The state of each vCPU of the VM: its struct hvs_slot in hexadecimal, as in the module's traces.
    pub slots: String,
}

fn is_false(is: &bool) -> bool {
    !is
}
