// SPDX-License-Identifier: MIT OR Apache-2.0
//! What keeps exits from being counted or named, in words that say what to change.

use std::path::{Path, PathBuf};

/// Why exits cannot be counted here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no thread to count exits of")]
    NoThreads,
    #[error("tracefs is not at {dir}; mount it: mount -t tracefs tracefs {dir}")]
    NoTracefs { dir: PathBuf },
    #[error("{path}: {source}; only root may trace, and not where the kernel is locked down (lockdown=confidentiality)")]
    Refused { path: PathBuf, source: std::io::Error },
    #[error(
        "the kernel has no tracepoint kvm_exit ({path} is not there); load kvm_intel or kvm_amd"
    )]
    NoKvm { path: PathBuf },
    #[error(
        "the kernel's tracepoint kvm_exit has no field {field}, so exits cannot be told apart"
    )]
    NoField { field: &'static str },
    #[error("the kernel counts no histograms of tracepoints: it is built without CONFIG_HIST_TRIGGERS, which Debian's kernels have")]
    NoHistograms,
    #[error("the kernel does not take the trigger {trigger:?}: {source}")]
    Trigger { trigger: String, source: std::io::Error },
    #[error("{path} holds the line {line:?}, which is no line of a histogram")]
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

    /// Whether this computer cannot count exits at all, whatever is asked of it.
    pub fn is_of_this_computer(&self) -> bool {
        use Error::{NoField, NoHistograms, NoKvm, NoTracefs, Refused};
        matches!(
            self,
            NoTracefs { .. } | Refused { .. } | NoKvm { .. } | NoField { .. } | NoHistograms
        )
    }
}

/// Why a file is no list of a guest's symbols.
#[derive(Debug, thiserror::Error)]
pub enum SymbolsError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path}, line {number}: {line:?} is not ADDRESS TYPE NAME; in the guest, as root: cat /proc/kallsyms")]
    Line { path: PathBuf, number: usize, line: String },
    #[error("all addresses in {path} are 0, as whoever is not root sees them; in the guest, as root: cat /proc/kallsyms (with kernel.kptr_restrict at 2 not even root sees them)")]
    Hidden { path: PathBuf },
    #[error("{path} has no functions of a kernel: none of its {lines} lines is one; in the guest, as root: cat /proc/kallsyms")]
    NoFunctions { path: PathBuf, lines: usize },
}
