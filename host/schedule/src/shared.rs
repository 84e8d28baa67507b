// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command sets and reads: bpf/shared.h in Rust.

use crate::ext;
use std::mem::size_of;

/// The most VMs, with that of strangers.
pub const VMS_MAX: usize = 64;
/// The number of all threads of SCHED_EXT that are no VM's, as if they were a VM.
pub const STRANGERS: usize = 0;
/// The weight of a VM whose share is that of the average VM.
pub const WEIGHT_USUAL: u32 = 10_000;
/// The unit of all threads of a VM that are no vCPUs. vCPUs have smaller numbers.
pub const OTHERS: u32 = 63;
/// CPUs have numbers below this.
pub const CPUS_MAX: usize = 512;

/// Whether a VM's vCPUs run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Gang {
    Never = 0,
    /// While they spin for each other, as pause-loop exits show.
    Auto = 1,
    Always = 2,
    /// They spin in user space, which pause-loop exits do not show.
    Spins = 3,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    pub turn_ns: u64,
    pub cpu_count: u64,
    /// The best first.
    pub cpus: [u16; CPUS_MAX],
    /// By CPU: CPUs of one number are one cache's whole cores, or its second threads.
    pub places: [u16; CPUS_MAX],
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Setting {
    pub weight: u32,
    pub gang: u32,
    pub vcpus: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub count: u32,
    pub vms: [Setting; VMS_MAX],
    /// By CPU: 1 if it is left to tasks of the host.
    pub left: [u8; CPUS_MAX],
}

/// What a VM did.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct VmReport {
    /// CPU time of all its threads, ns.
    pub ran_ns: u64,
    /// Of that, the time in holes, which it does not pay for.
    pub filled_ns: u64,
    /// How long its vCPUs were ready without a CPU, ns.
    pub waited_ns: u64,
    /// Pause-loop exits.
    pub spins: u64,
    /// Turns in which its vCPUs ran together.
    pub gangs: u64,
}

/// What the scheduler did.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Report {
    pub vms: [VmReport; VMS_MAX],
    /// Turns of gangs.
    pub turns: u64,
    /// Holes that were given back to a vCPU that woke up.
    pub returned: u64,
    /// CPUs that a vCPU which spun gave to a sibling.
    pub yields: u64,
    /// CPUs that it left to others, because too few siblings ran.
    pub gave_way: u64,
    /// Times that a task of a higher class took a CPU from a thread.
    pub pushed: u64,
    /// Time of tasks of the host, ns, by CPU.
    pub host_ns: [u64; CPUS_MAX],
    pub(crate) ending: ext::Ending,
}

impl Config {
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: numbers, and the assertion below holds that there are no gaps.
        unsafe { ext::bytes(self) }
    }
}

impl Settings {
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as for Config.
        unsafe { ext::bytes(self) }
    }
}

const _: () = assert!(size_of::<Config>() == 16 + 4 * CPUS_MAX);
const _: () = assert!(size_of::<Settings>() == 4 + 12 * VMS_MAX + CPUS_MAX);

impl Report {
    /// `None` if there are fewer bytes.
    pub(crate) fn of(bytes: &[u8]) -> Option<Report> {
        // SAFETY: any bytes are valid numbers.
        unsafe { ext::value(bytes) }
    }
}
