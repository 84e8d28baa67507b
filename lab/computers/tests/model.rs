// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab model --record` of VMs that run, on an emulated computer: one whose vCPUs meet seldom, and one
//! whose vCPUs meet often. tests/model.sh is what runs inside. unspin and unspin-lab are taken from where this
//! test is built.

mod common;

use unspin_computers::{Computer, Series, QEMU_TOOLS};

#[test]
fn types_of_vms_that_run_are_named() {
    let built = |name| common::built(name, "unspin-lab model --record");
    let (Some(lab_command), Some(command)) = (built("unspin-lab"), built("unspin")) else { return };
    let script = format!("{}\nfinish", include_str!("model.sh"));
    let extras = common::Extras { programs: vec![lab_command, command], ..common::NO_EXTRAS };
    let computer = Computer::qemu_in_virtual_time(4);
    common::checks("model", QEMU_TOOLS, &[Series::V6_12], &computer, &script, 11, extras);
}
