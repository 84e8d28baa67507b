// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin apply --stay` with the module in a stock kernel under QEMU: VMs by name and process, later
//! ones too, the file read again, stopped, killed. tests/service.sh is what runs inside.
//!
//! `UNSPIN_KERNELS`, `UNSPIN_LAB_DIR`. The command is taken from where this test is built.

mod common;

use unspin_lab::{Computer, Series, QEMU_TOOLS};

/// Checks of the script; fewer were made if it ended early.
const CHECKS_MIN: u32 = 25;

#[test]
fn the_service_under_qemu() {
    if !common::has_tools(QEMU_TOOLS) {
        return;
    }
    let command = common::inside().with_file_name("unspin");
    if !command.is_file() {
        common::say("SKIPPED: the service: the command is not built (make build)");
        return;
    }
    let lab = common::lab();
    let script = format!("{}\nfinish", include_str!("service.sh"));
    for series in common::kernels(&[Series::V6_12]) {
        let Some(kernel) = common::kernel(&lab, series) else { continue };
        let name = format!("service-{}", series.name());
        let extras = common::Extras { programs: vec![command.clone()], ..common::NO_EXTRAS };
        let computer = Computer::qemu_in_virtual_time(4);
        let heard = common::script_with(&lab, &kernel, &computer, &script, &name, extras);
        let wrong = common::verdict(series, &heard, CHECKS_MIN, &heard.console);
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    }
}
