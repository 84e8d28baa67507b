// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns in stock kernels under QEMU: vCPUs are kept from running and let in again, whatever happens
//! meanwhile to their threads, their VMs, the CPUs or the module. tests/gangs.sh is what runs inside.
//!
//! A fifth of `UNSPIN_CYCLES` (20) load, turn and unload cycles a kernel.

mod common;

use unspin_computers::{Computer, Series, QEMU_TOOLS};

#[test]
fn turns_under_qemu() {
    let cycles = common::cycles(20) / 5;
    let script = format!("CYCLES={cycles}\n{}", include_str!("gangs.sh"));
    let computer = Computer::qemu_in_virtual_time(4);
    common::checks("gangs", QEMU_TOOLS, &Series::ALL, &computer, &script, 99, common::NO_EXTRAS);
}
