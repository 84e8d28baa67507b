// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin schedule` in a stock kernel under QEMU. tests/schedule.sh is what runs inside. `UNSPIN_LAB_DIR`.

mod common;

use common::{Extras, NO_EXTRAS};
use unspin_computers::{Computer, Series, QEMU_TOOLS};

/// The least number of checks: a script that ends early makes fewer.
const CHECKS_MIN: u32 = 80;

#[test]
fn vms_are_scheduled_and_given_back() {
    let series = Series::V7_3;
    let Some(command) = common::built("unspin", "the scheduler for VMs") else { return };
    if !common::has_tools(QEMU_TOOLS) || common::kernels(&[series]).is_empty() {
        return;
    }
    let lab = common::lab();
    let Some(kernel) = common::kernel(&lab, series) else { return };
    let extras = Extras { programs: vec![command], ..NO_EXTRAS };
    let computer = Computer::qemu_in_virtual_time(4);
    let script = concat!(include_str!("ext.sh"), include_str!("schedule.sh"));
    let heard = common::script_with(&lab, &kernel, &computer, script, "schedule", extras);
    let wrong = common::verdict(series, &heard, CHECKS_MIN, &heard.console);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
