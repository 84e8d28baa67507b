// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module in stock kernels under QEMU: loading and every way to fail at it, switching, reading
//! and unloading under running VMs, and that nothing stays. tests/module.sh is what runs inside.
//!
//! `UNSPIN_CYCLES` (50) load, switch and unload cycles a kernel; `UNSPIN_KERNELS`, `UNSPIN_LAB_DIR`.

mod common;

use unspin_lab::{Computer, Series, QEMU_TOOLS};

/// Checks of the script; fewer were made if it ended early.
const CHECKS_MIN: u32 = 60;

#[test]
fn the_module_under_qemu() {
    if !common::has_tools(QEMU_TOOLS) {
        return;
    }
    let cycles: u32 = match std::env::var("UNSPIN_CYCLES") {
        Ok(text) => text.parse().expect("UNSPIN_CYCLES is a number"),
        Err(_) => 50,
    };
    let lab = common::lab();
    let script = format!("CYCLES={cycles}\n{}", include_str!("module.sh"));
    let mut wrong = Vec::new();
    for series in common::kernels(&[Series::V6_12, Series::V6_1]) {
        let Some(kernel) = common::kernel(&lab, series) else { continue };
        let name = format!("module-{}", series.name());
        let heard = common::script(&lab, &kernel, &Computer::qemu(4), &script, &name);
        let says = |what: String| format!("{}: {what}", series.name());
        wrong.extend(heard.lines.iter().filter(|l| l.starts_with("FAILED")).cloned().map(says));
        wrong.extend(common::splats(&heard.console).into_iter().map(|l| says(l.to_string())));
        if heard.passed + heard.failed < CHECKS_MIN {
            wrong.push(says(format!("only {} checks were made", heard.passed + heard.failed)));
        }
        if heard.failed > 0 {
            wrong.push(says(format!("{} checks failed", heard.failed)));
        }
        // The verdict counts only after the leaks and the log were looked at.
        let last =
            heard.lines.iter().rev().find(|l| l.starts_with("ok") || l.starts_with("FAILED"));
        if !last.is_some_and(|line| line.contains("no splat in the kernel's log")) {
            wrong.push(says("the log was not looked at last".into()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_splat_is_seen() {
    for bad in [
        "[    3.1] BUG: kernel NULL pointer dereference, address: 0000000000000008",
        "[    3.1] WARNING: CPU: 2 PID: 412 at kernel/trace/ftrace.c:2093 ftrace_bug+0x1/0x2",
        "[    3.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "[    3.1] watchdog: BUG: soft lockup - CPU#1 stuck for 26s!",
    ] {
        assert_eq!(common::splats(bad), [bad]);
    }
    assert!(common::splats("unspin: default/mode: 'on' is not allowed").is_empty());
}
