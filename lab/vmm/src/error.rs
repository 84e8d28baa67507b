// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors, which tell an operator what to change.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot open /dev/kvm: {0}; load kvm_intel or kvm_amd, and give this user access to it"
    )]
    OpenKvm(std::io::Error),
    #[error("KVM refused {what}: {source}")]
    Kvm { what: &'static str, source: std::io::Error },
    #[error(
        "KVM of this host cannot switch off PAUSE exits for a VM (KVM_CAP_X86_DISABLE_EXITS \
             lacks PAUSE); leave out arms with window = \"off\""
    )]
    PauseExitsStayOn,
    #[error("waiters of {lock} halt, and CPL {cpl} has no HLT; use cpl = 0, or a lock that only spins (tas, ticket, mcs, preemptable)")]
    HaltsAboveCpl0 { lock: &'static str, cpl: u8 },
    #[error(
        "waiters of {lock} halt until they are kicked, which KVM of this host does not support \
             (KVM_FEATURE_PV_UNHALT); use a lock that only spins (tas, ticket, mcs, preemptable)"
    )]
    NoPvUnhalt { lock: &'static str },
    #[error(
        "{lock} measures its waits, and KVM does not report the rate of the time-stamp \
             counter; set lock_clock_mhz in [host] of the scenario"
    )]
    NoLockClock { lock: &'static str },
    #[error("cannot set up guest memory: {0}")]
    Memory(String),
    #[error(transparent)]
    Program(#[from] unspin_guest_abi::ProgramError),
    #[error("{what}: {source}")]
    Os { what: String, source: std::io::Error },
    #[error("vCPU {vcpu}: {fault}")]
    Guest { vcpu: u32, fault: GuestFault },
    #[error("mutual exclusion violated: {releases} critical sections, but only {counted} counted under the locks")]
    MutualExclusion { releases: u64, counted: u64 },
    #[error("{running} of {vcpus} vCPUs did not stop within {seconds} s")]
    StopTimeout { running: u32, vcpus: u32, seconds: u64 },
    #[error("bad command: {0}")]
    Command(String),
}

/// The end of a vCPU that was not stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuestFault {
    /// An exception in the guest; `rip` as the processor pushed it.
    #[error(
        "exception {vector} at rip {rip:#x} (cpl {}, error code {error_code:#x}, cr2 {cr2:#x})",
        .cs & 3
    )]
    Exception { vector: u64, error_code: u64, rip: u64, cr2: u64, cs: u64 },
    #[error("triple fault, last rip {rip:#x}")]
    TripleFault { rip: u64 },
    #[error("the guest rejected its configuration page")]
    BadConfig,
    #[error("no x2APIC in the guest; KVM with an in-kernel irqchip has it")]
    BadApic,
    #[error("KVM refused to kick a halted vCPU (KVM_HC_KICK_CPU)")]
    BadKick,
    #[error("the processor refused to enter the guest (reason {reason:#x})")]
    FailEntry { reason: u64 },
    #[error("unexpected exit {exit} at rip {rip:#x}")]
    UnexpectedExit { exit: String, rip: u64 },
    #[error("KVM_RUN failed: {0}")]
    Run(String),
}

impl Error {
    pub(crate) fn kvm(what: &'static str) -> impl Fn(kvm_ioctls::Error) -> Error {
        move |e| Error::Kvm { what, source: std::io::Error::from_raw_os_error(e.errno()) }
    }

    pub(crate) fn memory<E: std::fmt::Display>(error: E) -> Error {
        Error::Memory(error.to_string())
    }

    pub(crate) fn os(what: impl Into<String>) -> Error {
        Error::Os { what: what.into(), source: std::io::Error::last_os_error() }
    }
}
