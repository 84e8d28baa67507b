// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons why the scheduler cannot be loaded.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}\n{usage}", usage = crate::USAGE)]
    Usage(String),
    #[error("this program was built without its scheduler: clang was missing")]
    NotBuilt,
    #[error("kernel {release} has no sched_ext: {path} is missing (CONFIG_SCHED_CLASS_EXT)")]
    NoSchedExt { release: String, path: String },
    #[error("kernel {release} has no type information: {path} is missing (CONFIG_DEBUG_INFO_BTF)")]
    NoTypes { release: String, path: String },
    #[error("another scheduler of sched_ext is loaded: {name}")]
    Occupied { name: String },
    #[error("the kernel refuses the scheduler: {what}\n{log}")]
    Load { what: libbpf_rs::Error, log: String },
    #[error("cannot move thread {tid} to the scheduler: {source}")]
    Class { tid: u32, source: io::Error },
    #[error("thread {tid} may run on {allowed} of {pcpus} pCPUs: pin it to 1 pCPU or to none")]
    Affinity { tid: u32, allowed: u32, pcpus: u32 },
    #[error("the kernel ended the scheduler: {reason}: {message}")]
    Ended { reason: String, message: String },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}
