// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command, run at the top of the checkout.

use std::path::Path;
use std::process::{Command, Output, Stdio};

pub fn lab(args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspin-lab"));
    command.args(args).current_dir(root).stdin(Stdio::null()).output().unwrap()
}
