// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab try` on an emulated computer with pause-loop exits, with windows so short that its figures
//! mean nothing. tests/try_host.sh is what runs inside. unspin-lab is taken from where this test is built.

mod common;

use unspin_computers::{Computer, Series, BOCHS_TOOLS};

/// The least number of checks: a script that ends early makes fewer.
const CHECKS_MIN: u32 = 12;

#[test]
fn a_host_is_tried_and_left_as_it_was() {
    let Some(command) = common::built("unspin-lab", "unspin-lab try") else { return };
    let script = format!("{}\nfinish", include_str!("try_host.sh"));
    let extras = common::Extras { programs: vec![command], ..common::NO_EXTRAS };
    common::on_kernels(BOCHS_TOOLS, &[Series::V6_12], |lab, kernel| {
        let computer = Computer::bochs(4);
        let heard = common::script_with(lab, kernel, &computer, &script, "try", extras.clone());
        common::verdict(kernel.series, &heard, CHECKS_MIN, &heard.console)
    });
}
