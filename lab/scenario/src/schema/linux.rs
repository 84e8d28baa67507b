// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux guests: the kernel that boots in them, and the program that runs on it.

use crate::schema::names::named;
use serde::{Deserialize, Serialize};
use strum::{EnumIter, IntoStaticStr};

named!(GuestLock, GuestIdle);

/// A guest's kernel and how QEMU boots it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinuxGuest {
    /// Series of Debian's kernel, such as `6.12`, or [`LOCKS_KERNEL`].
    pub kernel: String,
    pub lock: GuestLock,
    pub memory_mib: u32,
    pub idle: GuestIdle,
    /// Kernel parameters after those with which each guest boots.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub extra_cmdline: String,
    /// Whether it loads unspin-guest (guest/linux/vcrd/), which reports long waits for spin locks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub module: bool,
}

/// The kernel's spin-locks in a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum GuestLock {
    /// Queued, with waiters that halt: as Debian ships it with `-cpu host`.
    Pv,
    /// Queued, with waiters that spin (`nopvspin`).
    Queued,
    /// Test-and-set: the lock of a guest under a hypervisor whose CPU model offers no wake-ups
    /// (`-kvm-pv-unhalt`).
    TestAndSet,
    /// This and the following: locks of core/locks, which only [`LOCKS_KERNEL`] has.
    Preemptable,
    PvPreemptable,
    Oticket,
    Ticket,
}

/// The kernel with the locks of core/locks: [`LOCKS_SERIES`] with the changes of lab/guest/kernel.
pub const LOCKS_KERNEL: &str = "6.12-unspin";
pub const LOCKS_SERIES: &str = "6.12";

impl GuestLock {
    /// The kernel parameter that selects this lock; `None`: the kernel selects it by itself.
    pub fn parameter(self) -> Option<&'static str> {
        match self {
            GuestLock::Pv | GuestLock::TestAndSet => None,
            GuestLock::Queued => Some("nopvspin"),
            GuestLock::Preemptable => Some("spinlock=preemptable"),
            GuestLock::PvPreemptable => Some("spinlock=pv-preemptable"),
            GuestLock::Oticket => Some("spinlock=oticket"),
            GuestLock::Ticket => Some("spinlock=ticket"),
        }
    }

    /// Whether only [`LOCKS_KERNEL`] has this lock.
    pub fn needs_locks_kernel(self) -> bool {
        !matches!(self, GuestLock::Pv | GuestLock::Queued | GuestLock::TestAndSet)
    }
}

/// What an idle vCPU does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum GuestIdle {
    Halt,
    /// It polls for work and never halts (`idle=poll`).
    Poll,
}

/// An unmodified program, run by the guest (programs/NAME.toml).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestProgram {
    pub name: String,
    /// A line that describes it.
    pub title: String,
    /// Debian's packages that contain it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// Its sources in guest/linux/.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Additional options of the compiler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Command of the guest's shell, run once before `command`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prepare: String,
    /// Command of the guest's shell, with `$vcpus` and `$seed` set.
    pub command: String,
    /// Its unit of work, for people.
    pub unit: String,
    /// Functions of the C library whose calls are counted; empty if the program counts by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<String>,
    /// Where it is from.
    pub from: String,
}

/// A VM with a Linux guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinuxVm {
    pub guest: LinuxGuest,
    pub program: GuestProgram,
}
