// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module on a processor with indirect branch tracking (CET), under Bochs: no call of its own ends
//! behind an ENDBR64, where processor and kernel would stop it. tests/ibt.sh is what runs inside.

mod common;

use common::Extras;
use unspin_computers::{Computer, Series, BOCHS_TOOLS};

/// The least number of checks: a script that ends early makes fewer.
const CHECKS_MIN: u32 = 16;
/// Up to here the script makes a bad call itself, and the kernel says so.
const ON_PURPOSE: &str = "lab: no bad call on purpose from here on";

/// Debian builds its 6.1 without the kernel's part (CONFIG_X86_KERNEL_IBT), and the test's own module for 7.3
/// takes another compiler.
const SERIES: [Series; 1] = [Series::V6_12];

#[test]
fn no_call_ends_behind_an_endbr64() {
    common::on_kernels(BOCHS_TOOLS, &SERIES, |lab, kernel| {
        let behind = common::test_module(lab, kernel, "behind");
        let files = vec![("modules/behind.ko".to_string(), behind)];
        let extras = Extras { files, cmdline: "ibt=warn", ..common::NO_EXTRAS };
        let name = format!("ibt-{}", kernel.series.name());
        let script = include_str!("ibt.sh");
        let computer = Computer::bochs_with_ibt(2);
        let heard = common::script_with(lab, kernel, &computer, script, &name, extras);
        let of_module = heard.console.split_once(ON_PURPOSE).map_or("", |(_, rest)| rest);
        let mut wrong = common::verdict(kernel.series, &heard, CHECKS_MIN, of_module);
        if of_module.is_empty() {
            wrong.push(format!("{name}: the console ends before the module is loaded"));
        }
        wrong
    });
}
