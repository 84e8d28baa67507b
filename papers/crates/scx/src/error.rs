// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons why the scheduler cannot be loaded.

use std::io;

use unspin_schedule::ext;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}\n{usage}", usage = crate::USAGE)]
    Usage(String),
    #[error(transparent)]
    Ext(#[from] ext::Error),
    #[error("the scheduler's map {name} is missing")]
    NoMap { name: &'static str },
    #[error("cannot tell the scheduler: {0}")]
    Map(libbpf_rs::Error),
    #[error("cannot move thread {tid} to the scheduler: {source}")]
    Class { tid: u32, source: io::Error },
    #[error("thread {tid} may run on {allowed} of {pcpus} pCPUs: pin it to 1 pCPU or to none")]
    Affinity { tid: u32, allowed: u32, pcpus: u32 },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}
