// SPDX-License-Identifier: MIT OR Apache-2.0
//! The causes of lost time.

use serde::{Deserialize, Serialize};

/// The five overheads of the dissertation's chapter 2, waiting for a CPU, and the host's work for a guest's
/// devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A vCPU is runnable, but another task has its CPU, or its quota is used up.
    Contention,
    /// Pause-loop exits: spinning in the guest's kernel until the exit, and handling it.
    SpinSwitch,
    /// Going to sleep and waking up: HLT, polling, and the way back into the guest.
    IdleSwitch,
    /// Interrupts: those that vCPUs send each other, and those that end their guest.
    Ipi,
    /// Spinning in the guest's user space, which the processor does not report.
    UserSpin,
    /// Caches that vCPUs of one VM do not share.
    Cache,
    /// Devices that KVM or the VMM emulates: accesses to I/O ports and to memory of devices.
    Device,
    /// Accesses to model-specific registers, such as those of timers.
    Msr,
    /// CPU time of the VMM's threads that run no vCPU. It adds to the vCPUs' time.
    Monitor,
}

impl Cause {
    pub const ALL: [Cause; 9] = [
        Cause::Contention,
        Cause::SpinSwitch,
        Cause::IdleSwitch,
        Cause::Ipi,
        Cause::UserSpin,
        Cause::Cache,
        Cause::Device,
        Cause::Msr,
        Cause::Monitor,
    ];

    /// The name in tables, JSON and scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Contention => "contention",
            Cause::SpinSwitch => "spin-switch",
            Cause::IdleSwitch => "idle-switch",
            Cause::Ipi => "ipi",
            Cause::UserSpin => "user-spin",
            Cause::Cache => "cache",
            Cause::Device => "device",
            Cause::Msr => "msr",
            Cause::Monitor => "monitor",
        }
    }
}

/// The certainty of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sure {
    /// Every part was timed.
    Measured,
    /// A part was computed from counts.
    Estimated,
    /// Unknown on this host; not 0.
    Unknown,
}

impl Sure {
    pub fn name(self) -> &'static str {
        match self {
            Sure::Measured => "measured",
            Sure::Estimated => "estimated",
            Sure::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_name() {
        let mut names: Vec<&str> = Cause::ALL.iter().map(|cause| cause.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Cause::ALL.len());
    }
}
