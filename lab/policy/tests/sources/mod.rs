// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C files: those that the kernel module links, and those that are only modelled.

use std::path::{Path, PathBuf};

pub const UNITS: [&str; 11] = [
    "aple.c",
    "asym.c",
    "credit.c",
    "demand.c",
    "gang_account.c",
    "gang_turn.c",
    "gang_use.c",
    "hvs.c",
    "kvm_stock.c",
    "userspin.c",
    "vcrd.c",
];

pub fn folders() -> [PathBuf; 2] {
    ["../../core/policy", "c"].map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
}

pub fn source(file: &str) -> PathBuf {
    let found = folders().map(|folder| folder.join(file)).into_iter().find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("no {file}"))
}

/// Options with which a compiler finds the headers.
pub fn include() -> [String; 2] {
    folders().map(|folder| format!("-I{}", folder.display()))
}
