// SPDX-License-Identifier: MIT OR Apache-2.0
//! Credit as a scheduler of sched_ext (papers/crates/scx) in a stock kernel under QEMU. tests/scx.sh is what
//! runs inside.

mod common;

use common::{Extras, NO_EXTRAS};
use unspin_computers::{Computer, Series, QEMU_TOOLS};

/// The script on others, after inside.sh.
const WITHOUT: &str = r#"
answer=$(unspin-scx none 0 4000 1 1 100:0:$$ < /dev/null 2>&1)
check "it says what is missing: $answer" [ "${answer#*has no sched_ext: /sys/kernel/sched_ext}" != "$answer" ]
finish
"#;

#[test]
fn credit_by_sched_ext_under_qemu() {
    script(Series::V7_3, 4, concat!(include_str!("ext.sh"), include_str!("scx.sh")), 38);
}

#[test]
fn a_kernel_without_sched_ext_is_named() {
    script(Series::V6_1, 1, WITHOUT, 3);
}

fn script(series: Series, cpus: u32, script: &str, checks_min: u32) {
    let _alone = common::alone();
    let Some(scheduler) = common::built("unspin-scx", "Credit by sched_ext") else { return };
    let extras = Extras { programs: vec![scheduler], ..NO_EXTRAS };
    let computer = Computer::qemu_in_virtual_time(cpus);
    common::checks("scx", QEMU_TOOLS, &[series], &computer, script, checks_min, extras);
}
