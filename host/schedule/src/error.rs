// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why there is no scheduler, or no longer.

use crate::ext;
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("kernel {release} is too old: the scheduler needs {major}.{minor} or later; on older \
             kernels other tasks can starve tasks of SCHED_EXT", major = crate::KERNEL_MIN.0, minor = crate::KERNEL_MIN.1)]
    TooOld { release: String },
    #[error("the kernel's release is not a version: {release:?}")]
    NoVersion { release: String },
    #[error("the kernel has neither scx_bpf_reenqueue_local() for any context nor scx_bpf_dsq_reenq(): if a \
             task of the host takes a CPU, threads that wait there cannot move to another CPU")]
    NoReenqueue,
    #[error(transparent)]
    Ext(#[from] ext::Error),
    #[error("{count} CPUs: the scheduler supports 1 to {max}, with numbers below {max}", max = crate::CPUS_MAX)]
    Cpus { count: usize },
    #[error("this computer may have CPU {cpu}: the scheduler supports CPUs below {max}", max = crate::CPUS_MAX)]
    ManyCpus { cpu: u32 },
    #[error(
        "the scheduler already has {} VMs, its maximum: name fewer VMs",
        crate::VMS_MAX - 1
    )]
    ManyVms,
    #[error("cannot access the scheduler's BPF programs or maps: {0}")]
    Map(libbpf_rs::Error),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

impl Error {
    /// Whether this computer cannot have it, whatever is tried.
    pub fn is_of_computer(&self) -> bool {
        match self {
            Error::TooOld { .. }
            | Error::NoVersion { .. }
            | Error::NoReenqueue
            | Error::ManyCpus { .. } => true,
            Error::Ext(why) => !matches!(why, ext::Error::Ended { .. }),
            _ => false,
        }
    }
}
