// SPDX-License-Identifier: MIT OR Apache-2.0
//! The causes of lost time.

use serde::{Deserialize, Serialize};

macro_rules! named {
    ($(#[$of_all:meta])* $type:ident: $($(#[$doc:meta])* $one:ident $name:literal)*) => {
        $(#[$of_all])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $type {
            $($(#[$doc])* $one,)*
        }

        impl $type {
            pub const ALL: [$type; [$($name),*].len()] = [$($type::$one),*];

            /// The name in tables, JSON and scenarios.
            pub const fn name(self) -> &'static str {
                match self { $($type::$one => $name),* }
            }
        }
    };
}

named! {
    /// The five overheads of the dissertation's chapter 2, waiting for a CPU, and the host's work for a
    /// guest's devices.
    Cause:
    /// A vCPU is runnable, but another task has its CPU, or its quota is used up.
    Contention "contention"
    /// Pause-loop exits: spinning in the guest's kernel until the exit, and handling it.
    SpinSwitch "spin-switch"
    /// Going to sleep and waking up: HLT, polling, and the way back into the guest.
    IdleSwitch "idle-switch"
    /// Interrupts: those that vCPUs send each other, and those that end their guest.
    Ipi "ipi"
    /// Spinning in the guest's user space, which the processor does not report.
    UserSpin "user-spin"
    /// Caches that vCPUs of one VM do not share.
    Cache "cache"
    /// Devices that KVM or the VMM emulates: accesses to I/O ports and to memory of devices.
    Device "device"
    /// Accesses to model-specific registers, such as those of timers.
    Msr "msr"
    /// CPU time of the VMM's threads that run no vCPU. It adds to the vCPUs' time.
    Monitor "monitor"
}

named! {
    /// The certainty of a figure.
    Sure:
    /// Every part was timed.
    Measured "measured"
    /// A part was computed from counts.
    Estimated "estimated"
    /// Unknown on this host; not 0.
    Unknown "unknown"
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
