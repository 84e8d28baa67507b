// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace of the scheduler: lines of JSON, first a [`Begin`], then a [`Line`] each. `unspin-lab replay` reads them by this
//! file, too.

use serde::{Deserialize, Serialize};

/// Of the first line, by which a file is known as such a trace.
pub const TRACE: &str = "unspin schedule";
/// The version of the form.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    pub trace: String,
    pub schema: u32,
    /// Of unspin, and of the kernel.
    pub version: String,
    pub kernel: String,
    /// The CPUs of --cpus.
    pub cpus: String,
    /// Length of a gang's turn.
    pub turn_us: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    Vm(Vm),
    Next(Next),
    Turn(Turn),
    Yield(Yield),
    /// So many decisions before this line are not in the trace: they came faster than they were written.
    Lost(u64),
    /// The last line of a trace that was not broken off: how many decisions it has, and how many were lost.
    End {
        decisions: u64,
        lost: u64,
    },
}

/// A VM that is taken, or whose setting has changed. Decisions have its number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    pub number: u32,
    pub process: u32,
    pub name: String,
    pub vcpus: u32,
    /// Percent of the CPU time when all VMs want all of it.
    pub share: f64,
    pub gang: String,
}

/// A VM and its unit: a vCPU, or 63 for all its other threads. VM 0 has the threads that belong to no VM.
pub type Unit = (u8, u8);

/// Which unit runs next on a CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Next {
    /// CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    pub cpu: u32,
    /// Who ran there, and could go on.
    pub before: Option<Unit>,
    /// The virtual time of the VM that is owed most.
    pub vnow: u64,
    pub of: Vec<Candidate>,
    pub is: Option<Unit>,
}

/// The unit of a VM that could run next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    pub unit: Unit,
    /// The virtual time of its VM.
    pub vt: u64,
    /// Whether it is a vCPU that is owed CPU time by itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub owed: bool,
    /// Whether it is a vCPU of a gang.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gang: bool,
}

/// Which VM is next in the plan of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    pub at_ns: u64,
    /// How many CPUs VMs before it have left.
    pub left: u32,
    pub of: Vec<Ready>,
    /// The VM's number.
    pub is: Option<u8>,
    /// How many CPUs it needs.
    pub needs: u64,
    pub then: Then,
}

/// A VM with ready units.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    pub vm: u8,
    pub vt: u64,
    /// Whether it is a gang with a vCPU that is owed CPU time by itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub owed: bool,
}

/// What becomes of a VM in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// It is no gang: CPUs are kept free for those of its vCPUs that need them.
    Holds,
    /// A gang has its turn.
    Begins,
    /// Fewer CPUs are left than it needs.
    Waits,
    /// Its vCPUs cannot run together on the CPUs that are left.
    Apart,
}

/// Which vCPU gets a CPU from a sibling that spins there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Yield {
    pub at_ns: u64,
    pub cpu: u32,
    /// Who spins.
    pub caller: Unit,
    /// A bit for each vCPU that may not run there, or was tried.
    pub excluded: u64,
    /// Of hvs_pick().
    pub flags: u32,
    /// What hvs_pick() returned.
    pub pick: i32,
    /// Each vCPU of the VM, as in the module's traces (struct hvs_slot, in hexadecimal).
    pub slots: String,
}

fn is_false(is: &bool) -> bool {
    !is
}
