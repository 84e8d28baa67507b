// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab try` on an emulated computer with pause-loop exits, with windows so short that its figures
//! mean nothing. tests/try_host.sh is what runs inside. unspin-lab is taken from where this test is built.

mod common;

use unspin_computers::{Computer, Series, BOCHS_TOOLS};

#[test]
fn a_host_is_tried_and_left_as_it_was() {
    let Some(command) = common::built("unspin-lab", "unspin-lab try") else { return };
    let script = format!("{}\nfinish", include_str!("try_host.sh"));
    let extras = common::Extras { programs: vec![command], ..common::NO_EXTRAS };
    let (all, computer) = ([Series::V6_12], Computer::bochs(4));
    common::checks("try", BOCHS_TOOLS, &all, &computer, &script, 12, extras);
}
