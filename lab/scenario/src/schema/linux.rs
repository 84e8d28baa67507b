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
    /// Series of Debian's kernel, such as `6.12`.
    pub kernel: String,
    pub lock: GuestLock,
    pub memory_mib: u32,
    pub idle: GuestIdle,
    /// Words after those the guest is booted with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub extra_cmdline: String,
    /// It loads unspin-guest (guest/linux/vcrd/), which reports long waits for spin locks.
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
    /// What it does, in a line.
    pub title: String,
    /// Debian's packages it comes from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// Sources of guest/linux/ it is compiled from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Additional options of the compiler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Run by the guest's shell before the command, once.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prepare: String,
    /// Run by the guest's shell, which has `$vcpus` and `$seed`.
    pub command: String,
    /// A unit of its work, for people.
    pub unit: String,
    /// Functions of the C library whose calls are counted; empty: the program counts by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<String>,
    /// The source.
    pub from: String,
}

/// A VM with a Linux guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinuxVm {
    pub guest: LinuxGuest,
    pub program: GuestProgram,
}
