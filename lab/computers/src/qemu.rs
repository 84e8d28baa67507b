// SPDX-License-Identifier: MIT OR Apache-2.0
//! What computers that have Linux guests take of QEMU.

use std::path::PathBuf;

/// QEMU for guests' hosts.
#[derive(Debug)]
pub struct Qemu {
    /// Its program, all it loads, and its firmware: the path of each file on the host, without the
    /// leading slash, and its path here.
    pub files: Vec<(String, PathBuf)>,
    /// Of its package.
    pub version: String,
}
