// SPDX-License-Identifier: MIT OR Apache-2.0
//! Corners of the module under QEMU: what it must refuse, other users of its hooks, vCPUs that
//! starve, a hook that stays. tests/corners.sh runs inside.

mod common;

use unspin_computers::{Computer, Kernel, Lab, Series, QEMU_TOOLS};

/// What runs where the kernel does not trust its clock.
const UNSTABLE: &str = "
check 'an unstable TSC is refused' not insmod /modules/unspin.ko
check 'with a line that says so' sh -c \"dmesg | grep -q 'not loading: this machine.s TSC is unstable'\"
check 'and nothing stays' [ ! -e $U -a ! -s $HOOKS ]
finish";

#[test]
fn the_modules_corners_under_qemu() {
    common::on_kernels(QEMU_TOOLS, &[Series::V6_12, Series::V6_1], |lab, kernel| {
        [corners(lab, kernel), unstable_tsc(lab, kernel)].concat()
    });
}

fn corners(lab: &Lab, kernel: &Kernel) -> Vec<String> {
    let livepatch = common::test_module(lab, kernel, "patched");
    let files = vec![("modules/patched.ko".to_string(), livepatch)];
    let extras = common::Extras { files, ..common::NO_EXTRAS };
    let name = format!("corners-{}", kernel.series.name());
    let computer = Computer::qemu_in_virtual_time(4);
    common::checked(lab, kernel, &computer, include_str!("corners.sh"), &name, 86, extras)
}

fn unstable_tsc(lab: &Lab, kernel: &Kernel) -> Vec<String> {
    let extras = common::Extras { cmdline: "tsc=unstable", ..common::NO_EXTRAS };
    let name = format!("unstable-tsc-{}", kernel.series.name());
    let computer = Computer::qemu_in_virtual_time(1);
    common::checked(lab, kernel, &computer, UNSTABLE, &name, 4, extras)
}
