// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of a journal or of a change.

use super::change::Target;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{}: unspin (process {pid}) is changing settings of this host; wait for it, or stop it: it \
         then restores the settings",
        path.display()
    )]
    Busy { path: PathBuf, pid: String },
    #[error(
        "{}, line {line} is damaged: the list of changes on this host is incomplete. Its other \
         lines are JSON with the old and the new values: restore them by hand, then remove the \
         file",
        path.display()
    )]
    Damaged { path: PathBuf, line: usize },
    #[error(
        "{}, line {line} was written by another version of unspin: restore its changes with that \
         version (unspin diagnose --put-back)",
        path.display()
    )]
    OtherVersion { path: PathBuf, line: usize },
    #[error(
        "{} is writable by other users, and root restores settings from it: chown root and chmod \
         go-w",
        path.display()
    )]
    Open { path: PathBuf },
    #[error("cannot change {0}: it no longer exists")]
    Gone(Target),
    #[error("{target} was set to {set:?}, and is {is:?}: the kernel did not accept the value")]
    NotTaken { target: Target, set: String, is: String },
    /// Of the journal's file, or of one that it needs.
    #[error("cannot {doing} {}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot {doing} {what}")]
    Io { doing: &'static str, what: String, source: io::Error },
}

impl Error {
    /// Whether the journal could not be written: nothing was changed.
    pub fn is_of_journal(&self) -> bool {
        matches!(self, Error::File { doing: "write", .. })
    }

    /// Whether a thread or a file that was to be changed is no longer there.
    fn is_gone(&self) -> bool {
        match self {
            Error::Gone(_) => true,
            Error::Io { source, .. } => {
                source.raw_os_error() == Some(libc::ESRCH)
                    || source.kind() == io::ErrorKind::NotFound
            }
            _ => false,
        }
    }

    /// What was done to a target; `None` if it is no longer there.
    pub(super) fn if_there<T>(done: Result<T, Error>) -> Result<Option<T>, Error> {
        match done {
            Err(e) if e.is_gone() => Ok(None),
            done => done.map(Some),
        }
    }

    pub fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::File { doing, path, source }
    }

    pub fn of(doing: &'static str, target: &Target) -> impl FnOnce(io::Error) -> Error {
        let what = target.to_string();
        move |source| Error::Io { doing, what, source }
    }
}
