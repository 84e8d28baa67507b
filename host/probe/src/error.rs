// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why vCPUs cannot be watched.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("only root may watch vCPUs: use sudo")]
    NotRoot,
    #[error(
        "the kernel has no type information ({0} is missing), which BPF programs need: use a \
         kernel with CONFIG_DEBUG_INFO_BTF, such as a distribution kernel"
    )]
    NoTypes(String),
    #[error("the kernel's type information cannot be read: {path}: {cause}")]
    UnreadableTypes { path: String, cause: String },
    #[error(
        "kernel {release} has no type information of the module kvm (/sys/kernel/btf/kvm is missing), \
         which programs at its tracepoints need: use a kernel of 5.12 or later with \
         CONFIG_DEBUG_INFO_BTF_MODULES"
    )]
    NoModuleTypes { release: String },
    #[error("the BPF programs do not fit kernel {release}: {why}")]
    UnknownKernel { release: String, why: String },
    #[error("kernel {release} does not take the BPF programs: {cause}")]
    Verifier { release: String, cause: String },
    #[error(
        "UNSPIN_SYS names the files of another host, and BPF programs can only watch this one: {0}"
    )]
    OtherHost(String),
    #[error("KVM is not loaded (/sys/module has no kvm_intel and no kvm_amd): modprobe kvm_intel (or kvm_amd)")]
    NoKvm,
    #[error(
        "the kernel is locked down (confidentiality in /sys/kernel/security/lockdown), and refuses \
         programs that read its memory: boot with lockdown=integrity, or without Secure Boot"
    )]
    LockedDown,
    #[error(
        "the kernel refuses to load BPF programs: {0}; they need CONFIG_BPF_SYSCALL, and the \
         capabilities CAP_BPF and CAP_PERFMON, which containers may lack"
    )]
    Refused(String),
    #[error(
        "this process lacks the capability CAP_SYS_ADMIN, which the kernel requires to read the \
         types of the module kvm; in a systemd unit add it to CapabilityBoundingSet="
    )]
    NotAdmin,
    #[error("the kernel refuses a program for the tracepoint {tracepoint}: {cause}")]
    NoTracepoint { tracepoint: String, cause: String },
    #[error("at most {0} VMs can be watched")]
    TooManyVms(u32),
    #[error("at most {0} vCPUs can be watched")]
    TooManyVcpus(u32),
    #[error("cannot {doing}: {cause}")]
    Failed { doing: String, cause: String },
}

impl Error {
    /// Whether this computer or this user lacks what watching needs.
    pub fn is_of_this_computer(&self) -> bool {
        !matches!(self, Error::TooManyVms(_) | Error::TooManyVcpus(_) | Error::Failed { .. })
    }

    /// From libbpf's message when it could not load the programs. A lack of permission is not a refusal by
    /// the verifier.
    pub(crate) fn of_loading(cause: String, release: String) -> Error {
        let has = |words: &str| cause.contains(words);
        if has("(-EPERM)") || has("(-1)") {
            Error::Refused(cause)
        } else if has("prog '") {
            Error::Verifier { release, cause }
        } else {
            Error::failed("load the BPF programs", cause)
        }
    }

    pub(crate) fn failed(doing: impl Into<String>, cause: impl std::fmt::Display) -> Error {
        Error::Failed { doing: doing.into(), cause: cause.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_does_not_take_is_of_this_computer() {
        for (said, is_verifiers, is_of_this_computer) in [
            ("prog 'exit': BPF program load failed: -EACCES; R1 invalid mem access", true, true),
            ("prog 'exit': failed to find kernel BTF type ID of 'kvm_exit': -3", true, true),
            ("prog 'exit': BPF program load failed: Operation not permitted (-EPERM)", false, true),
            ("map 'vcpus': failed to create: Cannot allocate memory(-12)", false, false),
        ] {
            let error = Error::of_loading(format!("libbpf: {said}"), "5.11.0".into());
            assert_eq!(matches!(error, Error::Verifier { .. }), is_verifiers, "{error}");
            assert_eq!(error.is_of_this_computer(), is_of_this_computer, "{error}");
            assert!(error.to_string().contains(said), "{error}");
            assert!(!is_verifiers || error.to_string().contains("5.11.0"), "{error}");
        }
    }
}
