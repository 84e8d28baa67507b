// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of QEMU for computers that run Linux guests.

use std::path::PathBuf;

/// QEMU for hosts of guests.
#[derive(Debug)]
pub struct Qemu {
    /// The program, its libraries and its firmware: the path of each file on the host, without the
    /// leading slash, and its path here.
    pub files: Vec<(String, PathBuf)>,
    /// Version of its package.
    pub version: String,
}
