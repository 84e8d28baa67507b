// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why vCPUs cannot be watched.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("only root may watch vCPUs (by sudo, for example)")]
    NotRoot,
    #[error(
        "the kernel has no type information ({0} is not there), which BPF programs need; use a kernel \
         built with CONFIG_DEBUG_INFO_BTF, as distributions' kernels are"
    )]
    NoTypes(String),
    #[error(
        "the kernel has no KVM: /sys/module/kvm is not there; load it with: modprobe kvm_intel (or \
         kvm_amd)"
    )]
    NoKvm,
    #[error(
        "the kernel is locked down (/sys/kernel/security/lockdown says confidentiality), and refuses \
         programs that look into it; boot with lockdown=integrity, or without Secure Boot"
    )]
    LockedDown,
    #[error(
        "the kernel refuses to load BPF programs: {0}; it needs CONFIG_BPF_SYSCALL, and the capabilities \
         CAP_BPF and CAP_PERFMON, which containers may lack"
    )]
    Refused(String),
    #[error(
        "this process may not look into KVM: it lacks the capability CAP_SYS_ADMIN, without which the kernel \
         gives nobody the types of its modules; in a unit of systemd add it to CapabilityBoundingSet="
    )]
    NotAdmin,
    #[error("the kernel takes no program for its tracepoint {tracepoint}: {cause}")]
    NoTracepoint { tracepoint: String, cause: String },
    #[error("there is no room for more than {0} VMs")]
    TooManyVms(u32),
    #[error("there is no room for more than {0} vCPUs")]
    TooManyVcpus(u32),
    #[error("cannot {doing}: {cause}")]
    Failed { doing: String, cause: String },
}

impl Error {
    /// Whether this computer, or who asks on it, cannot do it at all.
    pub fn is_of_this_computer(&self) -> bool {
        !matches!(self, Error::TooManyVms(_) | Error::TooManyVcpus(_) | Error::Failed { .. })
    }

    pub(crate) fn failed(doing: impl Into<String>, cause: impl std::fmt::Display) -> Error {
        Error::Failed { doing: doing.into(), cause: cause.to_string() }
    }
}
