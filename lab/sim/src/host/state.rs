// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of the host's scheduler.

use super::asym::Asym;
use super::bandwidth::Bandwidth;
use super::credit::Credit;
use super::fair::{Entity, Queues, Tunables};
use super::gangs::Turns;
use super::groups::Groups;
use super::housekeeping::Housekeeping;
use crate::engine::{Table, VcpuId};

/// The scheduler that decides which vCPU runs on a pCPU.
pub enum Policy {
    /// Linux's fair scheduler. Components that a host does not have are `None` in [`Scheduler`].
    Fair,
    /// Credit, that of sched_ext or Xen's.
    Credit(Box<Credit>),
}

pub struct Scheduler {
    pub policy: Policy,
    pub queues: Queues,
    /// Ready vCPUs that any pCPU may take.
    pub movable: u32,
    pub entities: Table<VcpuId, Entity>,
    pub tunables: Tunables,
    /// The VMs' cgroups.
    pub groups: Option<Box<Groups>>,
    /// When the idle pCPUs are balanced next, if groups' loads lag.
    pub nohz_balance_ns: u64,
    /// The VMs' caps.
    pub bandwidth: Option<Box<Bandwidth>>,
    pub asym: Option<Box<Asym>>,
    /// Turns of VMs whose vCPUs run together, which the module makes.
    pub turns: Option<Box<Turns>>,
    /// The host's own tasks.
    pub housekeeping: Option<Box<Housekeeping>>,
}
