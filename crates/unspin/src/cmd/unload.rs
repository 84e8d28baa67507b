// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin unload`: takes the module out, under running VMs too.

use crate::exit::Cannot;
use crate::sysfs::ROOT;
use anyhow::{bail, Context};
use std::path::Path;
use std::process::Command;

pub fn run() -> anyhow::Result<()> {
    if !Path::new(ROOT).is_dir() {
        eprintln!("the module is not loaded");
        return Ok(());
    }
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return Err(Cannot("only root may unload the module (sudo unspin unload)".into()).into());
    }
    let out = Command::new("rmmod").arg("unspin").output().context("cannot start rmmod")?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        bail!("{}; `unspin set mode=off` stops it from acting meanwhile", said.trim());
    }
    Ok(())
}
