// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns are ended a hundred times under QEMU, by `off`, by unloading and by killing the service, and no
//! vCPU waits afterwards. tests/rollback.sh is what runs inside.
//!
//! `UNSPIN_CYCLES` (34) of each.

mod common;

use unspin_computers::Series;

const ROUNDS: u32 = 34;

#[test]
fn nobody_waits_once_turns_are_ended() {
    let rounds = common::cycles(ROUNDS);
    let script = format!("ROUNDS={rounds}\n{}", include_str!("rollback.sh"));
    common::command_under_qemu("rollback", &[Series::V6_12], &script, 8, |_| Vec::new());
}
