// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns in stock kernels under QEMU: vCPUs are kept from running and let in again, whatever happens
//! meanwhile to their threads, their VMs, the CPUs or the module. tests/gangs.sh is what runs inside.
//!
//! A fifth of `UNSPIN_CYCLES` (20) load, turn and unload cycles a kernel; `UNSPIN_KERNELS`,
//! `UNSPIN_LAB_DIR`.

mod common;

use unspin_computers::{Computer, Series, QEMU_TOOLS};

/// The least number of checks: a script that ends early makes fewer.
const CHECKS_MIN: u32 = 92;

#[test]
fn turns_under_qemu() {
    if !common::has_tools(QEMU_TOOLS) {
        return;
    }
    let lab = common::lab();
    let cycles = common::cycles(20) / 5;
    let script = format!("CYCLES={cycles}\n{}", include_str!("gangs.sh"));
    let mut wrong = Vec::new();
    for series in common::kernels(&Series::ALL) {
        let Some(kernel) = common::kernel(&lab, series) else { continue };
        let name = format!("gangs-{}", series.name());
        let computer = Computer::qemu_in_virtual_time(4);
        let heard = common::script(&lab, &kernel, &computer, &script, &name);
        wrong.extend(common::verdict(series, &heard, CHECKS_MIN, &heard.console));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
