// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thousands of VMs of one process under QEMU, and a load that fails with a hook that stays.
//! tests/limits.sh is what runs inside.
//!
//! `UNSPIN_KERNELS`, `UNSPIN_LAB_DIR`.

mod common;

use unspin_computers::{Computer, Series, QEMU_TOOLS};

/// The least number of checks: a script that ends early makes fewer.
const CHECKS_MIN: u32 = 17;

#[test]
fn many_vms_and_a_hook_that_stays() {
    if !common::has_tools(QEMU_TOOLS) {
        return;
    }
    let lab = common::lab();
    let script = include_str!("limits.sh");
    let mut wrong = Vec::new();
    for series in common::kernels(&[Series::V6_12, Series::V6_1]) {
        let Some(kernel) = common::kernel(&lab, series) else { continue };
        let computer = Computer { memory_mib: 3072, ..Computer::qemu_in_virtual_time(4) };
        let name = format!("limits-{}", series.name());
        let heard = common::script(&lab, &kernel, &computer, script, &name);
        wrong.extend(common::verdict(series, &heard, CHECKS_MIN, &heard.console));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
