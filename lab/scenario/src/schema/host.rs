// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host of a scenario: what machine `sim` models, and the cgroup layout of vCPUs.

use crate::schema::names::named;
use serde::{Deserialize, Serialize};
use strum::{EnumIter, IntoStaticStr};

named!(HostModel, HostScheduler, LoopDetection, CgroupLayout);

/// Clock and costs of a modelled host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostModel {
    /// The emulated computer: 200 MHz, a cycle an instruction.
    #[default]
    Lab,
    /// A server of the papers' time: 2.4 GHz.
    Server,
}

/// Scheduler of a modelled host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostScheduler {
    /// The kernel's own: CFS or EEVDF.
    #[default]
    Fair,
    /// The same, but no VM gets more than its weight's share (`cpu.max`).
    FairCapped,
    /// Credit as the sched_ext scheduler has it (the most credit first), work-conserving: unused time
    /// of a VM goes to the others.
    Credit,
    /// The same; no VM gets more than its weight's share.
    CreditCapped,
    /// Credit of Xen 3.3 (ranks UNDER and OVER), work-conserving.
    XenCredit,
    /// The same; no VM gets more than its weight's share.
    XenCreditCapped,
}

impl HostScheduler {
    /// Whether it is one of those named Credit.
    pub fn is_credit(self) -> bool {
        !matches!(self, HostScheduler::Fair | HostScheduler::FairCapped)
    }

    /// Whether vCPUs have slots, whose length an arm may set.
    pub fn has_slots(self) -> bool {
        matches!(self, HostScheduler::Credit | HostScheduler::CreditCapped)
    }
}

/// How a modelled processor detects a PAUSE loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoopDetection {
    /// Intel: a loop at CPL 0 that lasts longer than a window of cycles.
    #[default]
    Ple,
    /// AMD: a number of PAUSEs, at any level.
    PauseFilter,
}

/// How vCPU threads are laid out in cgroups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupLayout {
    #[default]
    Flat,
    /// A cgroup per VM.
    Vm,
    /// In the VM's cgroup, one per vCPU.
    Vcpu,
    /// As libvirt: `machine.slice/NAME.scope/libvirt/{emulator,vcpuN}`.
    Libvirt,
}
