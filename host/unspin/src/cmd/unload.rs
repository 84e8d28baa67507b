// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin unload`: takes the module out, under running VMs too.

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
    // If it cannot be taken out it is off, at least.
    if let Err(e) = Module::open(Path::new(ROOT))?.set(None, &[("mode", "off")]) {
        say!("the modes of the VMs are unchanged: {}", said(&e));
    }
    host::remove()
}
