// SPDX-License-Identifier: MIT OR Apache-2.0
//! `guest/abi.h` and `guest/linux/area.h` agree with their Rust mirrors: a C program prints its
//! values.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::mem::offset_of;
use std::process::Command;

use unspin_guest_abi as abi;
use unspin_scenario::result::{Responses, RESPONSE_BUCKETS};

/// A C expression, and its value in the mirror.
#[allow(clippy::too_many_lines)] // a list
fn mirror() -> Vec<(&'static str, u64)> {
    let step = |o: usize| o as u64;
    vec![
        ("GUEST_ABI_MAGIC", abi::MAGIC.into()),
        ("GUEST_ABI_VERSION", abi::VERSION.into()),
        ("GUEST_VCPUS_MAX", abi::VCPUS_MAX as u64),
        ("GUEST_STEPS_MAX", abi::STEPS_MAX as u64),
        ("GUEST_LOCKS_MAX", abi::LOCKS_MAX as u64),
        ("GUEST_WAIT_BUCKETS", abi::WAIT_BUCKETS as u64),
        ("GUEST_STALL_BUCKETS", abi::STALL_BUCKETS as u64),
        ("GUEST_RESPONSE_BUCKETS", RESPONSE_BUCKETS as u64),
        ("response_bucket(0)", Responses::bucket(0) as u64),
        ("response_bucket(7)", Responses::bucket(7) as u64),
        ("response_bucket(8)", Responses::bucket(8) as u64),
        ("response_bucket(1000003)", Responses::bucket(1_000_003) as u64),
        ("response_bucket(-1)", Responses::bucket(u64::MAX) as u64),
        ("GUEST_RAM_BYTES", abi::RAM_BYTES as u64),
        ("GUEST_GDT_ADDR", abi::GDT_ADDR),
        ("GUEST_PML4_ADDR", abi::PML4_ADDR),
        ("GUEST_PDPT_ADDR", abi::PDPT_ADDR),
        ("GUEST_PD_ADDR", abi::PD_ADDR),
        ("GUEST_TSS_ADDR", abi::TSS_ADDR),
        ("GUEST_TSS_STRIDE", abi::TSS_STRIDE),
        ("GUEST_CONFIG_ADDR", abi::CONFIG_ADDR),
        ("GUEST_PROTECTED_ADDR", abi::PROTECTED_ADDR),
        ("GUEST_CALLS_ADDR", abi::CALLS_ADDR),
        ("GUEST_COUNTERS_ADDR", abi::COUNTERS_ADDR),
        ("GUEST_COUNTERS_STRIDE", abi::COUNTERS_STRIDE),
        ("GUEST_IMAGE_ADDR", abi::IMAGE_ADDR),
        ("GUEST_IMAGE_END", abi::IMAGE_END),
        ("GUEST_STACKS_ADDR", abi::STACKS_ADDR),
        ("GUEST_STACK_BYTES", abi::STACK_BYTES),
        ("GUEST_CS_KERNEL", abi::CS_KERNEL.into()),
        ("GUEST_DS_KERNEL", abi::DS_KERNEL.into()),
        ("GUEST_DS_USER", abi::DS_USER.into()),
        ("GUEST_CS_USER", abi::CS_USER.into()),
        ("GUEST_TR", abi::TR.into()),
        ("GUEST_VECTOR_TIMER", abi::VECTOR_TIMER.into()),
        ("GUEST_VECTOR_WAKE", abi::VECTOR_WAKE.into()),
        ("GUEST_VECTOR_CALL", abi::VECTOR_CALL.into()),
        ("GUEST_VECTOR_SPURIOUS", abi::VECTOR_SPURIOUS.into()),
        ("GUEST_PORT_END", abi::PORT_END.into()),
        ("GUEST_PORT_FAULT", abi::PORT_FAULT.into()),
        ("GUEST_STOPPED", abi::STOPPED.into()),
        ("GUEST_BAD_CONFIG", abi::BAD_CONFIG.into()),
        ("GUEST_BAD_APIC", abi::BAD_APIC.into()),
        ("GUEST_BAD_KICK", abi::BAD_KICK.into()),
        ("GUEST_FEATURE_VMMCALL", abi::FEATURE_VMMCALL.into()),
        ("GUEST_FEATURE_TAU", abi::FEATURE_TAU.into()),
        ("GUEST_OP_COMPUTE", abi::OP_COMPUTE.into()),
        ("GUEST_OP_LOCK", abi::OP_LOCK.into()),
        ("GUEST_OP_CRITICAL", abi::OP_CRITICAL.into()),
        ("GUEST_OP_UNLOCK", abi::OP_UNLOCK.into()),
        ("GUEST_OP_BARRIER", abi::OP_BARRIER.into()),
        ("GUEST_OP_BLOCK", abi::OP_BLOCK.into()),
        ("GUEST_OP_WAKE", abi::OP_WAKE.into()),
        ("GUEST_OP_SPIN_BARRIER", abi::OP_SPIN_BARRIER.into()),
        ("GUEST_OP_SHOOTDOWN", abi::OP_SHOOTDOWN.into()),
        ("GUEST_OP_SHOOTDOWN_LAZY", abi::OP_SHOOTDOWN_LAZY.into()),
        ("GUEST_OP_COMPUTE_FIRST", abi::OP_COMPUTE_FIRST.into()),
        ("GUEST_OP_COMPUTE_ROTATING", abi::OP_COMPUTE_ROTATING.into()),
        ("GUEST_OP_COMPUTE_MOVING", abi::OP_COMPUTE_MOVING.into()),
        ("GUEST_UNITS_PER_MOVE", abi::UNITS_PER_MOVE.into()),
        ("GUEST_MEMORY_LEFT", abi::MEMORY_LEFT.into()),
        ("GUEST_MEMORY_LAZY", abi::MEMORY_LAZY.into()),
        ("GUEST_MEMORY_USED", abi::MEMORY_USED.into()),
        ("GUEST_DIST_CONST", abi::DIST_CONST.into()),
        ("GUEST_DIST_UNIFORM", abi::DIST_UNIFORM.into()),
        ("GUEST_DIST_EXP", abi::DIST_EXP.into()),
        ("GUEST_LOCK_TAS", abi::LOCK_TAS.into()),
        ("GUEST_LOCK_TICKET", abi::LOCK_TICKET.into()),
        ("GUEST_LOCK_MCS", abi::LOCK_MCS.into()),
        ("GUEST_LOCK_PREEMPTABLE", abi::LOCK_PREEMPTABLE.into()),
        ("GUEST_LOCK_PV_TICKET", abi::LOCK_PV_TICKET.into()),
        ("GUEST_LOCK_PV_PREEMPTABLE", abi::LOCK_PV_PREEMPTABLE.into()),
        ("GUEST_LOCK_OTICKET", abi::LOCK_OTICKET.into()),
        ("GUEST_LOCK_OTICKET_SPIN", abi::LOCK_OTICKET_SPIN.into()),
        ("GUEST_LOCK_OTICKET_WAKE", abi::LOCK_OTICKET_WAKE.into()),
        ("GUEST_LOCK_ITICKET", abi::LOCK_ITICKET.into()),
        ("GUEST_LOCK_LONG_TICKET", abi::LOCK_LONG_TICKET.into()),
        ("GUEST_LOCK_PV_QUEUED", abi::LOCK_PV_QUEUED.into()),
        ("GUEST_LOCK_LEASE", abi::LOCK_LEASE.into()),
        ("sizeof(struct guest_step)", size_of::<abi::Step>() as u64),
        ("offsetof(struct guest_step, op)", step(offset_of!(abi::Step, op))),
        ("offsetof(struct guest_step, dist)", step(offset_of!(abi::Step, dist))),
        ("offsetof(struct guest_step, a)", step(offset_of!(abi::Step, a))),
        ("offsetof(struct guest_step, b)", step(offset_of!(abi::Step, b))),
        ("offsetof(struct guest_step, lock)", step(offset_of!(abi::Step, lock))),
        ("offsetof(struct guest_step, permille)", step(offset_of!(abi::Step, permille))),
        ("offsetof(struct guest_step, skip)", step(offset_of!(abi::Step, skip))),
        ("sizeof(struct guest_config)", size_of::<abi::Config>() as u64),
        ("offsetof(struct guest_config, magic)", step(offset_of!(abi::Config, magic))),
        ("offsetof(struct guest_config, version)", step(offset_of!(abi::Config, version))),
        ("offsetof(struct guest_config, vcpus)", step(offset_of!(abi::Config, vcpus))),
        ("offsetof(struct guest_config, lock_kind)", step(offset_of!(abi::Config, lock_kind))),
        ("offsetof(struct guest_config, cpl)", step(offset_of!(abi::Config, cpl))),
        ("offsetof(struct guest_config, steps_count)", step(offset_of!(abi::Config, steps_count))),
        ("offsetof(struct guest_config, features)", step(offset_of!(abi::Config, features))),
        (
            "offsetof(struct guest_config, lock_ticks_per_us)",
            step(offset_of!(abi::Config, lock_ticks_per_us)),
        ),
        ("offsetof(struct guest_config, seed)", step(offset_of!(abi::Config, seed))),
        ("offsetof(struct guest_config, lock_tau_ns)", step(offset_of!(abi::Config, lock_tau_ns))),
        (
            "offsetof(struct guest_config, report_log2_cycles)",
            step(offset_of!(abi::Config, report_log2_cycles)),
        ),
        (
            "offsetof(struct guest_config, tsc_ticks_per_us)",
            step(offset_of!(abi::Config, tsc_ticks_per_us)),
        ),
        ("offsetof(struct guest_config, steps)", step(offset_of!(abi::Config, steps))),
        ("offsetof(struct guest_config, stop)", step(offset_of!(abi::Config, stop))),
        ("sizeof(struct guest_protected)", abi::PROTECTED_STRIDE),
        ("sizeof(struct guest_calls)", size_of::<abi::Calls>() as u64),
        ("offsetof(struct guest_calls, asked)", step(offset_of!(abi::Calls, asked))),
        ("offsetof(struct guest_calls, answered)", step(offset_of!(abi::Calls, answered))),
        ("offsetof(struct guest_calls, memory)", step(offset_of!(abi::Calls, memory))),
        ("sizeof(struct guest_counters)", size_of::<abi::Counters>() as u64),
        ("offsetof(struct guest_counters, units)", step(offset_of!(abi::Counters, units))),
        (
            "offsetof(struct guest_counters, acquisitions)",
            step(offset_of!(abi::Counters, acquisitions)),
        ),
        ("offsetof(struct guest_counters, releases)", step(offset_of!(abi::Counters, releases))),
        (
            "offsetof(struct guest_counters, iterations)",
            step(offset_of!(abi::Counters, iterations)),
        ),
        (
            "offsetof(struct guest_counters, max_wait_cycles)",
            step(offset_of!(abi::Counters, max_wait_cycles)),
        ),
        ("offsetof(struct guest_counters, wait_hist)", step(offset_of!(abi::Counters, wait_hist))),
        (
            "offsetof(struct guest_counters, stalls_free)",
            step(offset_of!(abi::Counters, stalls_free)),
        ),
        (
            "offsetof(struct guest_counters, stalls_held)",
            step(offset_of!(abi::Counters, stalls_held)),
        ),
        ("offsetof(struct guest_counters, responses)", step(offset_of!(abi::Counters, responses))),
        (
            "offsetof(struct guest_counters, response_cycles)",
            step(offset_of!(abi::Counters, response_cycles)),
        ),
        (
            "offsetof(struct guest_counters, response_hist)",
            step(offset_of!(abi::Counters, response_hist)),
        ),
    ]
}

/// The same of `guest/linux/area.h`.
fn area_mirror() -> Vec<(&'static str, u64)> {
    use abi::area;
    let step = |o: usize| o as u64;
    vec![
        ("AREA_ADDR", area::ADDR),
        ("AREA_BYTES", area::BYTES as u64),
        ("AREA_MAGIC", area::MAGIC),
        ("AREA_VERSION", area::VERSION.into()),
        ("AREA_SLOTS", area::SLOTS as u64),
        ("AREA_NAME_BYTES", area::NAME_BYTES as u64),
        ("AREA_TEXT_BYTES", area::TEXT_BYTES as u64),
        ("AREA_ERROR_BYTES", area::ERROR_BYTES as u64),
        ("AREA_NOTHING", area::STATE_NOTHING.into()),
        ("AREA_READY", area::STATE_READY.into()),
        ("AREA_RUNS", area::STATE_RUNS.into()),
        ("AREA_FAILED", area::STATE_FAILED.into()),
        ("AREA_ENDED", area::STATE_ENDED.into()),
        ("sizeof(AREA_RESERVE)", area::RESERVE.len() as u64 + 1),
        ("sizeof(struct area)", size_of::<area::Area>() as u64),
        ("sizeof(struct area_slot)", size_of::<area::Slot>() as u64),
        ("offsetof(struct area, guest.magic)", step(offset_of!(area::Area, guest.magic))),
        ("offsetof(struct area, guest.version)", step(offset_of!(area::Area, guest.version))),
        ("offsetof(struct area, guest.state)", step(offset_of!(area::Area, guest.state))),
        ("offsetof(struct area, guest.answered)", step(offset_of!(area::Area, guest.answered))),
        (
            "offsetof(struct area, guest.exit_status)",
            step(offset_of!(area::Area, guest.exit_status)),
        ),
        ("offsetof(struct area, guest.starts)", step(offset_of!(area::Area, guest.starts))),
        ("offsetof(struct area, guest.pids)", step(offset_of!(area::Area, guest.pids))),
        ("offsetof(struct area, guest.boots)", step(offset_of!(area::Area, guest.boots))),
        ("offsetof(struct area, guest.online)", step(offset_of!(area::Area, guest.online))),
        ("offsetof(struct area, host.seed)", step(offset_of!(area::Area, host.seed))),
        ("offsetof(struct area, host.serial)", step(offset_of!(area::Area, host.serial))),
        ("offsetof(struct area, host.program)", step(offset_of!(area::Area, host.program))),
        ("offsetof(struct area, error)", step(offset_of!(area::Area, error))),
        ("offsetof(struct area, found.kernel)", step(offset_of!(area::Area, found.kernel))),
        ("offsetof(struct area, found.lock)", step(offset_of!(area::Area, found.lock))),
        ("offsetof(struct area, found.ipis)", step(offset_of!(area::Area, found.ipis))),
        ("offsetof(struct area, found.tlb_flush)", step(offset_of!(area::Area, found.tlb_flush))),
        (
            "offsetof(struct area, found.sched_yield)",
            step(offset_of!(area::Area, found.sched_yield)),
        ),
        (
            "offsetof(struct area, found.clocksource)",
            step(offset_of!(area::Area, found.clocksource)),
        ),
        ("offsetof(struct area, found.module)", step(offset_of!(area::Area, found.module))),
        ("sizeof(AREA_MODULE_ENV)", area::MODULE_WORD.len() as u64),
        ("offsetof(struct area, next_slot)", step(offset_of!(area::Area, next_slot))),
        ("offsetof(struct area, responses.count)", step(offset_of!(area::Area, responses.count))),
        ("offsetof(struct area, responses.cycles)", step(offset_of!(area::Area, responses.cycles))),
        ("offsetof(struct area, responses.hist)", step(offset_of!(area::Area, responses.hist))),
        ("offsetof(struct area, slot)", step(offset_of!(area::Area, slots))),
    ]
}

/// Compares the C compiler's value of each expression, with `header` included.
fn header(header: &str, expressions: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let mut source = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"{header}\"\nint main(void)\n{{\n",
    );
    for (expression, _) in expressions {
        writeln!(source, "printf(\"%llu {expression}\\n\", (unsigned long long)({expression}));")
            .unwrap();
    }
    source.push_str("return 0;\n}\n");
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let name = header.replace('/', "-");
    // Not as the header is called: a file beside the source comes before it.
    let (c, program) = (dir.join(format!("{name}.c")), dir.join(format!("{name}.out")));
    std::fs::write(&c, source).unwrap();
    let guest = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest");
    let compiled =
        Command::new("cc").args(["-std=c11", "-I", guest]).arg(&c).arg("-o").arg(&program).status();
    assert!(compiled.expect("a C compiler").success());
    let output = Command::new(&program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(value, expression)| (expression.to_string(), value.parse().unwrap()))
        .collect()
}

#[test]
fn mirrors_match_the_headers() {
    for (file, mirror) in [("abi.h", mirror()), ("linux/area.h", area_mirror())] {
        let header = header(file, &mirror);
        assert_eq!(header.len(), mirror.len());
        for (expression, value) in mirror {
            assert_eq!(header[expression], value, "{expression}");
        }
    }
}
