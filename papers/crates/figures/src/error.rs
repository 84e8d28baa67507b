// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no entry {id:?}{hint}; known: {known}")]
    Unknown { id: String, hint: String, known: String },
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{}: {text}", path.display())]
    Wrong { path: PathBuf, text: String },
    #[error("{id}: {text}")]
    Experiment { id: String, text: String },
    #[error(transparent)]
    Sim(#[from] unspin_sim::Error),
}
