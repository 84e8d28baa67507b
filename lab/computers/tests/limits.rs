// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thousands of VMs of one process under QEMU, and a load that fails with a hook that stays.
//! tests/limits.sh is what runs inside.

mod common;

use unspin_computers::{Computer, Series, QEMU_TOOLS};

#[test]
fn many_vms_and_a_hook_that_stays() {
    let computer = Computer { memory_mib: 3072, ..Computer::qemu_in_virtual_time(4) };
    let (all, script) = ([Series::V6_12, Series::V6_1], include_str!("limits.sh"));
    common::checks("limits", QEMU_TOOLS, &all, &computer, script, 17, common::NO_EXTRAS);
}
