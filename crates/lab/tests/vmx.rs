// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module on an emulated VT-x computer of two CPUs: function only, no figure is taken. What runs
//! inside is tests/vmx.sh: windows read back after `off` and after unloading, nested guests, windows
//! that are not where they were thought, unloading under running VMs.
//!
//! `UNSPIN_KERNELS`, `UNSPIN_LAB_DIR`.

mod common;

use unspin_lab::{Computer, Series, BOCHS_TOOLS};

/// Checks of the script; fewer were made if it ended early.
const CHECKS_MIN: u32 = 50;

#[test]
fn the_module_on_vt_x() {
    if !common::has_tools(BOCHS_TOOLS) {
        return;
    }
    let lab = common::lab();
    let mut wrong = Vec::new();
    for series in common::kernels(&[Series::V6_12, Series::V6_1]) {
        let Some(kernel) = common::kernel(&lab, series) else { continue };
        let name = format!("vmx-{}", series.name());
        let script = include_str!("vmx.sh");
        let heard = common::script(&lab, &kernel, &Computer::bochs(2), script, &name);
        wrong.extend(common::verdict(series, &heard, CHECKS_MIN, &heard.console));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
