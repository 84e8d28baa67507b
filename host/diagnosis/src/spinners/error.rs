// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of counting and naming exits. Each says what to change.

use std::path::{Path, PathBuf};

/// Why exits cannot be counted here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no thread to count exits of")]
    NoThreads,
    #[error("tracefs is not at {dir}; mount it: mount -t tracefs tracefs {dir}")]
    NoTracefs { dir: PathBuf },
    #[error("{path}: {source}; tracing needs root, and a kernel without lockdown=confidentiality")]
    Refused { path: PathBuf, source: std::io::Error },
    #[error(
        "the kernel has no tracepoint kvm_exit ({path} is missing): load kvm_intel or kvm_amd"
    )]
    NoKvm { path: PathBuf },
    #[error("the tracepoint kvm_exit of this kernel has no field {field}, which identifies exits")]
    NoField { field: &'static str },
    #[error(
        "the kernel has no histograms of tracepoints: use a kernel with CONFIG_HIST_TRIGGERS, \
             such as Debian's"
    )]
    NoHistograms,
    #[error("the kernel refuses the trigger {trigger:?}: {source}")]
    Trigger { trigger: String, source: std::io::Error },
    #[error("{path} has the line {line:?}, which is not a line of a histogram")]
    Histogram { path: PathBuf, line: String },
    #[error("{dir} cannot be removed: {source}; remove it with: rmdir {dir}")]
    Stays { dir: PathBuf, source: std::io::Error },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An operation on `path` that failed.
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Error {
        let path = path.to_path_buf();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Error::Refused { path, source },
            _ => Error::Io { path, source },
        }
    }

    /// Whether this computer cannot count exits at all.
    pub fn is_of_this_computer(&self) -> bool {
        use Error::{NoField, NoHistograms, NoKvm, NoTracefs, Refused};
        matches!(
            self,
            NoTracefs { .. } | Refused { .. } | NoKvm { .. } | NoField { .. } | NoHistograms
        )
    }
}

/// Why a file is not a list of a guest's symbols.
#[derive(Debug, thiserror::Error)]
pub enum SymbolsError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path}, line {number}: {line:?} is not ADDRESS TYPE NAME; in the guest, as root: cat /proc/kallsyms")]
    Line { path: PathBuf, number: usize, line: String },
    #[error(
        "all addresses in {path} are 0, because it was not read as root; in the guest, as \
             root: cat /proc/kallsyms (with kernel.kptr_restrict=2 root sees 0 too)"
    )]
    Hidden { path: PathBuf },
    #[error(
        "{path} has no kernel functions in its {lines} lines; in the guest, as root: cat \
             /proc/kallsyms"
    )]
    NoFunctions { path: PathBuf, lines: usize },
}
