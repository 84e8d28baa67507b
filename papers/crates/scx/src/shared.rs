// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler's settings before it is loaded, and its counts: bpf/config.h in Rust.

pub const VCPUS_MAX: usize = 16;
pub const VMS_MAX: usize = 8;
pub const PCPUS_MAX: usize = 8;
const REASON_BYTES: usize = 128;

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
    pub unused: u32,
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
    pub exit_kind: i32,
    exit_reason: [u8; REASON_BYTES],
    exit_message: [u8; REASON_BYTES],
}

impl Config {
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: plain numbers without gaps, which the assertion below holds.
        unsafe {
            std::slice::from_raw_parts(
                (self as *const Config).cast(),
                std::mem::size_of::<Config>(),
            )
        }
    }
}

const _: () =
    assert!(std::mem::size_of::<Config>() == 8 + 8 * PCPUS_MAX + 24 + 8 * VMS_MAX + 16 * VCPUS_MAX);

impl Report {
    /// `None` if there are too few bytes.
    pub fn of(bytes: &[u8]) -> Option<Report> {
        if bytes.len() < std::mem::size_of::<Report>() {
            return None;
        }
        // SAFETY: there are enough bytes, and any bytes are valid numbers.
        Some(unsafe { bytes.as_ptr().cast::<Report>().read_unaligned() })
    }

    pub fn reason(&self) -> String {
        text(&self.exit_reason)
    }

    pub fn message(&self) -> String {
        text(&self.exit_message)
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
