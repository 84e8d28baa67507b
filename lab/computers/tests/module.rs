// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module in stock kernels under QEMU: loading and every way to fail at it, switching, reading
//! and unloading under running VMs, and that nothing stays. tests/module.sh is what runs inside.
//!
//! `UNSPIN_CYCLES` (20) load, switch and unload cycles a kernel.

mod common;

use unspin_computers::{Computer, Series, QEMU_TOOLS};

/// The least number of checks: a script that ends early makes fewer.
const CHECKS_MIN: u32 = 77;

#[test]
fn the_module_under_qemu() {
    let cycles = common::cycles(20);
    let script = format!("CYCLES={cycles}\n{}\nfinish", include_str!("module.sh"));
    common::on_kernels(QEMU_TOOLS, &Series::ALL, |lab, kernel| {
        let name = format!("module-{}", kernel.series.name());
        let production = std::fs::read(&kernel.module).unwrap();
        let extras = common::Extras {
            files: vec![("modules/unspin-production.ko".into(), production)],
            ..common::NO_EXTRAS
        };
        let computer = Computer::qemu_in_virtual_time(4);
        let heard = common::script_with(lab, kernel, &computer, &script, &name, extras);
        let mut wrong = common::verdict(kernel.series, &heard, CHECKS_MIN, &heard.console);
        // The verdict counts only after the leaks and the log were looked at.
        let last =
            heard.lines.iter().rev().find(|l| l.starts_with("ok") || l.starts_with("FAILED"));
        if !last.is_some_and(|line| line.contains("no splat in the kernel's log")) {
            wrong.push(format!("{name}: the log was not looked at last"));
        }
        wrong
    });
}

/// The module that hosts load has neither fault injection nor false facts.
#[test]
fn only_the_build_for_tests_has_parameters() {
    let has = |module: &[u8], text: &str| module.windows(text.len()).any(|w| w == text.as_bytes());
    common::on_kernels(QEMU_TOOLS, &Series::ALL, |_, kernel| {
        let series = kernel.series;
        let read = |path| std::fs::read(path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let (production, tests) = (read(&kernel.module), read(&kernel.test_module));
        for name in [
            "crowded_ok",
            "fail_at",
            "fail_unhook",
            "force_broken",
            "force_mismatches",
            "force_pause_intercept",
            "look_always",
        ] {
            let described = format!("parm={name}:for tests: ");
            assert!(has(&tests, &described), "{}: no {name} to test with", series.name());
            assert!(!has(&production, name), "{}: {name} in production", series.name());
        }
        for text in ["parm=", "parmtype=", "injected failure", "svm_force_pause"] {
            assert!(!has(&production, text), "{}: {text} in production", series.name());
        }
        Vec::new()
    });
}

#[test]
fn what_failed_is_said_with_the_end_of_the_kernels_log() {
    let heard = |failed, lines: &[&str]| common::Heard {
        lines: lines.iter().map(|line| line.to_string()).collect(),
        passed: CHECKS_MIN,
        failed,
        console: String::new(),
    };
    let lines = ["ok loads", "FAILED unloads: busy", "log: [   3.1] unspin: loaded"];
    let wrong = common::verdict(Series::V6_1, &heard(1, &lines), CHECKS_MIN, "");
    assert_eq!(
        wrong,
        ["6.1: FAILED unloads: busy", "6.1: 1 checks failed", "6.1: log: [   3.1] unspin: loaded"]
    );
    assert!(common::verdict(Series::V6_1, &heard(0, &lines[..1]), CHECKS_MIN, "").is_empty());
    let few = common::verdict(Series::V6_1, &heard(0, &lines[..1]), CHECKS_MIN + 1, "");
    assert_eq!(few, [format!("6.1: only {CHECKS_MIN} checks were made")]);
    let splat = "[    3.1] BUG: kernel NULL pointer dereference";
    let crashed = common::verdict(Series::V6_1, &heard(0, &lines[..1]), CHECKS_MIN, splat);
    assert_eq!(crashed, [format!("6.1: {splat}")]);
}

#[test]
fn flags_that_no_processor_has_are_told() {
    let crash =
        "[   35.1] RIP: 0010:mas_preallocate+0x1/0x2\n[   35.1] RSP: 0018:ffffc900 EFLAGS: ";
    let impossible = format!("{crash}05e2e64e\n[   35.1] RAX: 0");
    let line = "[   35.1] RSP: 0018:ffffc900 EFLAGS: 05e2e64e";
    assert_eq!(common::impossible_flags(&impossible), Some(line));
    assert_eq!(common::impossible_flags(&format!("{crash}00010246\n")), None);
    assert_eq!(common::impossible_flags(&format!("{crash}00250286 ORIG_RAX: ffff")), None);
}

#[test]
fn a_stall_of_the_emulators_is_told_from_one_of_the_modules() {
    let stall = "[   68.2] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n\
        [   68.2] NMI backtrace for cpu 3\n[   68.2] RIP: 0010:";
    let idle = format!("{stall}asm_sysvec_reschedule_ipi+0x0/0x20");
    assert!(common::stalled_elsewhere(&idle));
    assert!(!common::stalled_elsewhere(&format!("{stall}unspin_on_spin+0x0/0x20 [unspin]")));
    let called = format!("{idle}\n[   68.3] Call Trace:\n[   68.3]  turns_grow+0x5/0x20 [unspin]");
    assert!(!common::stalled_elsewhere(&called));
    assert!(!common::stalled_elsewhere("[    3.1] RIP: 0010:asm_sysvec_reschedule_ipi+0x0/0x20"));
    let heard = common::Heard { lines: Vec::new(), passed: 99, failed: 0, console: String::new() };
    let wrong = common::verdict(Series::V6_1, &heard, CHECKS_MIN, &idle);
    assert!(wrong.iter().any(|line| line.contains("RIP: 0010:asm_sysvec")), "{wrong:?}");
}

#[test]
fn a_splat_is_seen() {
    for bad in [
        "[    3.1] BUG: kernel NULL pointer dereference, address: 0000000000000008",
        "[    3.1] WARNING: CPU: 2 PID: 412 at kernel/trace/ftrace.c:2093 ftrace_bug+0x1/0x2",
        "[    3.1] WARNING: possible circular locking dependency detected",
        "[    3.1] BUG: KASAN: slab-use-after-free in unspin_vm_end+0x41/0x1b0 [unspin]",
        "[    3.1] BUG: sleeping function called from invalid context at kernel/locking/mutex.c:585",
        "[    3.1] ODEBUG: free active (active state 0) object: 00000000c0ffee00 object type: work_struct",
        "[    3.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "[    3.1] watchdog: BUG: soft lockup - CPU#1 stuck for 26s!",
    ] {
        assert_eq!(common::splats(bad), [bad]);
    }
    assert!(common::splats("unspin: default/mode: 'on' is not allowed").is_empty());
}
