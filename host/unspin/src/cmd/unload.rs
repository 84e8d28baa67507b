// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin unload`: unloads the module, even while VMs run.

use crate::exit::{said, Cannot};
use crate::host;
use crate::sysfs::{root, Module};

pub fn run() -> anyhow::Result<()> {
    if !root().is_dir() {
        say!("the module is not loaded");
        return Ok(());
    }
    if !host::is_root() {
        return Err(Cannot("only root may unload the module: sudo unspin unload".into()).into());
    }
    // If it cannot be unloaded, at least turn it off.
    if let Err(e) = Module::open(&root())?.set(None, &[("mode", "off")]) {
        say!("the modes of the VMs are unchanged: {}", said(&e));
    }
    host::remove()
}
