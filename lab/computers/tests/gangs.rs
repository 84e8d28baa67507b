// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns in stock kernels under QEMU: vCPUs are kept from running and let in again, whatever happens
//! meanwhile to their threads, their VMs, the CPUs or the module. tests/gangs.sh is what runs inside.
//!
//! A fifth of `UNSPIN_CYCLES` (20) load, turn and unload cycles a kernel; `UNSPIN_KERNELS`,
//! `UNSPIN_LAB_DIR`.

mod common;

use unspin_computers::{Computer, Series, QEMU_TOOLS};

/// The least number of checks: a script that ends early makes fewer.
const CHECKS_MIN: u32 = 99;

#[test]
fn turns_under_qemu() {
    let cycles = common::cycles(20) / 5;
    let script = format!("CYCLES={cycles}\n{}", include_str!("gangs.sh"));
    common::on_kernels(QEMU_TOOLS, &Series::ALL, |lab, kernel| {
        let name = format!("gangs-{}", kernel.series.name());
        let computer = Computer::qemu_in_virtual_time(4);
        let heard = common::script(lab, kernel, &computer, &script, &name);
        common::verdict(kernel.series, &heard, CHECKS_MIN, &heard.console)
    });
}
