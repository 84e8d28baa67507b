// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module in kernels that check themselves (src/debug.config): all that tests/gangs.sh and
//! tests/module.sh do, then every allocation of a load and of a switch of modes failing in turn, and the kernel has
//! found nothing; then faults it must find, so that this says something (tests/debug.sh).
//!
//! `UNSPIN_CYCLES` (20) load, switch and unload cycles a kernel.

mod common;

use std::time::Duration;
use unspin_computers::{Computer, Series, DEBUG_TOOLS, QEMU_TOOLS};

/// The least number of checks: scripts that end early make fewer.
const CHECKS_MIN: u32 = 75;
const TURNS_CHECKS_MIN: u32 = 90;
/// Such a kernel needs some 8 times the instructions: at the usual speed, a turn ends before the vCPUs of
/// its VM are switched in.
const TURNS_IPS: u64 = 1_000_000_000;
/// What faulty.ko says before its fault: splats after that are meant.
const ON_PURPOSE: &str = "faulty: ";
/// KASAN's shadow, freed memory it holds back, and a stack trace for every allocation.
const MEMORY_MIB: u32 = 3072;
/// KASAN says more than its first finding. Time passes for the emulated computer while others have
/// this one's CPUs: what looks stuck to it for less than two minutes need not be. Allocations of all
/// caches but those of the kernel's own checks may be made to fail.
const CMDLINE: &str =
    "kasan_multi_shot watchdog_thresh=60 workqueue.watchdog_thresh=120 rcupdate.rcu_cpu_stall_timeout=120 \
     slub_debug=A;-,kmemleak_object,kmemleak_scan_area,debug_objects_cache";
/// Of CPU time. Such a kernel takes five times as long, and the test prints nothing while it
/// creates 200 VMs.
const SILENCE: Duration = Duration::from_secs(1200);

#[test]
#[ignore = "builds a kernel and takes an hour: make soak-debug"]
fn the_module_on_debug_kernels() {
    let Some(lab) = common::lab(&[QEMU_TOOLS, DEBUG_TOOLS].concat()) else { return };
    let cycles = common::cycles(20);
    let script = format!(
        "CYCLES={cycles}\necho clear > /sys/kernel/debug/kmemleak\n{}\n{}",
        include_str!("module.sh"),
        include_str!("debug.sh")
    );
    // Such a kernel takes long to throttle.
    let turns = format!("CYCLES=2\nQUOTA_TICKS_MAX=110\n{}", include_str!("gangs.sh"));
    let computer = Computer { memory_mib: MEMORY_MIB, ..Computer::qemu(4) };
    let mut wrong = Vec::new();
    for series in common::kernels(&[Series::V6_12, Series::V6_1]) {
        let built = common::going(|go| lab.build_debug(series, go));
        let Some(kernel) = common::prepared(series.name(), built) else { continue };
        let production = std::fs::read(&kernel.module).unwrap();
        let files = vec![
            ("modules/faulty.ko".to_string(), common::test_module(&lab, &kernel, "faulty")),
            ("modules/unspin-production.ko".to_string(), production),
        ];
        let extras = || common::Extras { cmdline: CMDLINE, silence: SILENCE, ..common::NO_EXTRAS };
        let name = format!("debug-gangs-{}", series.name());
        let in_time = Computer {
            memory_mib: MEMORY_MIB,
            ips: TURNS_IPS,
            ..Computer::qemu_in_virtual_time(4)
        };
        let heard = common::script_with(&lab, &kernel, &in_time, &turns, &name, extras());
        wrong.extend(common::verdict(series, &heard, TURNS_CHECKS_MIN, &heard.console));
        let name = format!("debug-{}", series.name());
        let extras = common::Extras { files, ..extras() };
        let heard = common::script_with(&lab, &kernel, &computer, &script, &name, extras);
        let clean = heard.console.split(ON_PURPOSE).next().unwrap_or_default();
        wrong.extend(common::verdict(series, &heard, CHECKS_MIN, &without_refusals(clean)));
        if heard.console.len() == clean.len() {
            wrong.push(format!("{}: no fault was made on purpose", series.name()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A console without the stack traces that only say whose allocation was refused, as debug.sh does
/// with the log: up to a trace's head, which is what counts as a splat.
fn without_refusals(console: &str) -> String {
    let mut refusal = false;
    let mut kept = String::new();
    for line in console.lines() {
        refusal |= line.contains("allocation failed, mode:");
        if !refusal {
            kept.extend([line, "\n"]);
        }
        refusal &= !line.contains("Call Trace");
    }
    kept
}

#[test]
fn only_the_trace_of_a_refusal_is_left_out() {
    let refusal =
        "vmalloc error: size 576, vm_struct allocation failed, mode:0xdc0\nCPU: 2\nCall Trace:\n";
    let fault = "WARNING: suspicious RCU usage\nCall Trace:\n";
    assert!(common::splats(&without_refusals(refusal)).is_empty());
    assert_eq!(without_refusals(&format!("{refusal}{fault}{refusal}")), fault);
}
