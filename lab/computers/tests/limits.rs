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
    common::on_kernels(QEMU_TOOLS, &[Series::V6_12, Series::V6_1], |lab, kernel| {
        let computer = Computer { memory_mib: 3072, ..Computer::qemu_in_virtual_time(4) };
        let name = format!("limits-{}", kernel.series.name());
        let heard = common::script(lab, kernel, &computer, include_str!("limits.sh"), &name);
        common::verdict(kernel.series, &heard, CHECKS_MIN, &heard.console)
    });
}
