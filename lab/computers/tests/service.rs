// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin apply --stay` with the module in a stock kernel under QEMU: VMs by name and process, later
//! ones too, the file read again, stopped, killed. tests/service.sh is what runs inside.

mod common;

use unspin_computers::Series;

#[test]
fn the_service_under_qemu() {
    let script = include_str!("service.sh");
    common::command_under_qemu("service", &[Series::V6_12], script, 25, |_| Vec::new());
}
