// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a journal, or with a change.

use super::change::Target;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{}: unspin (process {pid}) is changing settings of this host; wait for it, or end it: it \
         puts them back",
        path.display()
    )]
    Busy { path: PathBuf, pid: String },
    #[error(
        "{}, line {line} is damaged: what was changed on this host cannot be told for sure. Its other \
         lines are JSON, and say what was and what was set: put that back by hand, then remove the file",
        path.display()
    )]
    Damaged { path: PathBuf, line: usize },
    #[error(
        "{}, line {line} was written by another version of unspin: put back with that version what it \
         has changed (unspin diagnose --put-back)",
        path.display()
    )]
    OtherVersion { path: PathBuf, line: usize },
    #[error(
        "others may write to {}, which says what root is to put back: make it root's alone (chmod \
         go-w, chown root)",
        path.display()
    )]
    Open { path: PathBuf },
    #[error("cannot change {0}: not there any more")]
    Gone(Target),
    #[error("{target} was set to {set:?}, and is {is:?}: the kernel did not take it")]
    NotTaken { target: Target, set: String, is: String },
    #[error("cannot {doing} {what}")]
    Io { doing: &'static str, what: String, source: io::Error },
}

impl Error {
    pub fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let what = path.display().to_string();
        move |source| Error::Io { doing, what, source }
    }

    pub fn of(doing: &'static str, target: &Target) -> impl FnOnce(io::Error) -> Error {
        let what = target.to_string();
        move |source| Error::Io { doing, what, source }
    }
}
