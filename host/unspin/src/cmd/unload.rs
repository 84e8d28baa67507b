// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin unload`: unloads the module, also while VMs run.

use crate::exit::{said, Cannot};
use crate::host;
use crate::sysfs::{Module, ROOT};
use std::path::Path;

pub fn run() -> anyhow::Result<()> {
    if !Path::new(ROOT).is_dir() {
        say!("the module is not loaded");
        return Ok(());
    }
    if !host::is_root() {
        return Err(Cannot("only root may unload the module: sudo unspin unload".into()).into());
    }
    // If it cannot be unloaded, it is at least off.
    if let Err(e) = Module::open(Path::new(ROOT))?.set(None, &[("mode", "off")]) {
        say!("the modes of the VMs are unchanged: {}", said(&e));
    }
    host::remove()
}
