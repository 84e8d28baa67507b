// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler's settings before it is loaded, and its counts: bpf/config.h in Rust.

use unspin_schedule::ext;

pub const VCPUS_MAX: usize = 16;
pub const VMS_MAX: usize = 8;
pub const PCPUS_MAX: usize = 8;

/// The VMs whose vCPUs run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Gang {
    Nobody = 0,
    Named = 1,
    Reported = 2,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct VcpuConfig {
    pub tid: u32,
    pub vm: u32,
    pub pcpu: u32,
    pub pinned: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct VmConfig {
    pub weight: u32,
    pub named: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub slot_ns: u64,
    pub phase_ns: [u64; PCPUS_MAX],
    pub gang: u32,
    pub vcpu_count: u32,
    pub vm_count: u32,
    pub pcpu_count: u32,
    pub capped: u32,
    pub slots_per_assignment: u32,
    pub vms: [VmConfig; VMS_MAX],
    pub vcpus: [VcpuConfig; VCPUS_MAX],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Report {
    pub picks: u64,
    pub switches: u64,
    pub gangs: u64,
    pub reports: u64,
    pub lost_locks: u64,
    pub run_ns: [u64; VMS_MAX],
    pub ending: ext::Ending,
}

impl Config {
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: numbers, and the assertion below holds that there are no gaps.
        unsafe { ext::bytes(self) }
    }
}

const _: () =
    assert!(std::mem::size_of::<Config>() == 8 + 8 * PCPUS_MAX + 24 + 8 * VMS_MAX + 16 * VCPUS_MAX);

impl Report {
    /// `None` if there are too few bytes.
    pub fn of(bytes: &[u8]) -> Option<Report> {
        // SAFETY: any bytes are valid numbers.
        unsafe { ext::value(bytes) }
    }
}
