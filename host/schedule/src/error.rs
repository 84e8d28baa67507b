// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why there is no scheduler, or no longer.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("kernel {release} is too old: the scheduler needs {major}.{minor} or later, where tasks of SCHED_EXT are \
             not starved by others", major = crate::KERNEL_MIN.0, minor = crate::KERNEL_MIN.1)]
    TooOld { release: String },
    #[error("kernel {release} has no sched_ext: {path} is missing (CONFIG_SCHED_CLASS_EXT)")]
    NoSchedExt { release: String, path: String },
    #[error("kernel {release} has no type information: {path} is missing (CONFIG_DEBUG_INFO_BTF)")]
    NoTypes { release: String, path: String },
    #[error("another sched_ext scheduler is loaded: {name}; stop it first")]
    Occupied { name: String },
    #[error("{count} CPUs: the scheduler takes 1 to {max}, with numbers below {max}", max = crate::CPUS_MAX)]
    Cpus { count: usize },
    #[error(
        "there are {} VMs already, which is the most that the scheduler takes",
        crate::VMS_MAX
    )]
    ManyVms,
    #[error("the kernel refuses the scheduler: {what}\n{log}")]
    Load { what: libbpf_rs::Error, log: String },
    #[error("cannot tell the scheduler: {0}")]
    Map(libbpf_rs::Error),
    #[error("the kernel ended the scheduler: {reason}: {message}")]
    Ended { reason: String, message: String },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

impl Error {
    /// Whether this computer cannot have it, whatever is tried.
    pub fn is_of_computer(&self) -> bool {
        matches!(
            self,
            Error::TooOld { .. }
                | Error::NoSchedExt { .. }
                | Error::NoTypes { .. }
                | Error::Occupied { .. }
                | Error::Load { .. }
        )
    }
}
