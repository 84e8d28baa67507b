// SPDX-License-Identifier: MIT OR Apache-2.0
//! `guest/abi.h` and `guest/linux/area.h` agree with their Rust mirrors: a C program prints its
//! values.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::mem::offset_of;
use std::process::Command;

use unspin_guest_abi as abi;
use unspin_scenario::plan::LockKind;
use unspin_scenario::result::{Responses, RESPONSE_BUCKETS};

/// A C expression, and its value in the mirror.
type Mirrored = (&'static str, u64);

/// Constants of a module, which the header has with this prefix.
macro_rules! constants {
    ($($module:ident)::+, $prefix:literal: $($name:ident)*) => {{
        use $($module)::+ as mirror;
        [$((concat!($prefix, stringify!($name)), mirror::$name as u64)),*]
    }};
}

/// The size of a structure, and where its fields are.
macro_rules! structure {
    ($c:literal $rust:ty: $($($field:ident).+)*) => {
        [
            (concat!("sizeof(struct ", $c, ")"), size_of::<$rust>() as u64),
            $((
                concat!("offsetof(struct ", $c, ", ", stringify!($($field).+), ")"),
                offset_of!($rust, $($field).+) as u64,
            )),*
        ]
    };
}

fn mirror() -> Vec<Mirrored> {
    let mut all = vec![
        ("GUEST_ABI_MAGIC", abi::MAGIC.into()),
        ("GUEST_ABI_VERSION", abi::VERSION.into()),
        ("GUEST_RESPONSE_BUCKETS", RESPONSE_BUCKETS as u64),
        ("response_bucket(0)", Responses::bucket(0) as u64),
        ("response_bucket(7)", Responses::bucket(7) as u64),
        ("response_bucket(8)", Responses::bucket(8) as u64),
        ("response_bucket(1000003)", Responses::bucket(1_000_003) as u64),
        ("response_bucket(-1)", Responses::bucket(u64::MAX) as u64),
        ("sizeof(struct guest_protected)", abi::PROTECTED_STRIDE),
    ];
    all.extend(constants!(unspin_guest_abi, "GUEST_":
        VCPUS_MAX STEPS_MAX LOCKS_MAX WAIT_BUCKETS STALL_BUCKETS RAM_BYTES GDT_ADDR PML4_ADDR
        PDPT_ADDR PD_ADDR TSS_ADDR TSS_STRIDE CONFIG_ADDR PROTECTED_ADDR CALLS_ADDR COUNTERS_ADDR
        COUNTERS_STRIDE IMAGE_ADDR IMAGE_END STACKS_ADDR STACK_BYTES CS_KERNEL DS_KERNEL DS_USER
        CS_USER TR VECTOR_WAKE PORT_END PORT_FAULT STOPPED BAD_APIC BAD_KICK FEATURE_VMMCALL
        FEATURE_TAU FEATURE_SPIN OP_COMPUTE OP_LOCK OP_CRITICAL OP_UNLOCK OP_BARRIER OP_BLOCK OP_WAKE
        OP_SPIN_BARRIER OP_SHOOTDOWN OP_SHOOTDOWN_LAZY OP_COMPUTE_FIRST OP_COMPUTE_ROTATING
        OP_COMPUTE_MOVING UNITS_PER_MOVE MEMORY_LEFT MEMORY_LAZY MEMORY_USED DIST_CONST
        DIST_UNIFORM DIST_EXP));
    all.extend(LockKind::all().into_iter().map(|(name, lock)| {
        let name = format!("GUEST_LOCK_{}", name.to_uppercase().replace('-', "_"));
        (&*name.leak(), u64::from(abi::lock_kind(lock)))
    }));
    all.extend(structure!("guest_step" abi::Step: op dist a b lock permille skip));
    all.extend(
        structure!("guest_config" abi::Config: magic version vcpus lock_kind cpl steps_count
        features lock_ticks_per_us seed lock_tau_ns lock_spin_ns report_log2_cycles tsc_ticks_per_us
        steps stop),
    );
    all.extend(structure!("guest_calls" abi::Calls: asked answered memory));
    all.extend(structure!("guest_counters" abi::Counters: units acquisitions releases iterations
        max_wait_cycles wait_hist stalls_free stalls_held responses response_cycles response_hist));
    all
}

/// The same of `guest/linux/area.h`.
fn area_mirror() -> Vec<Mirrored> {
    use abi::area::{self, Area, Slot};
    let mut all = vec![
        ("AREA_READY", area::STATE_READY.into()),
        ("AREA_RUNS", area::STATE_RUNS.into()),
        ("AREA_FAILED", area::STATE_FAILED.into()),
        ("AREA_ENDED", area::STATE_ENDED.into()),
        ("sizeof(AREA_RESERVE)", area::RESERVE.len() as u64 + 1),
        ("sizeof(AREA_MODULE_ENV)", area::MODULE_WORD.len() as u64),
        ("offsetof(struct area, slot)", offset_of!(Area, slots) as u64),
    ];
    all.extend(constants!(unspin_guest_abi::area, "AREA_":
        ADDR BYTES MAGIC VERSION SLOTS NAME_BYTES TEXT_BYTES ERROR_BYTES));
    all.extend(structure!("area" Area: guest.magic guest.version guest.state guest.answered
        guest.exit_status guest.starts guest.pids guest.boots guest.online host.seed host.serial
        host.program error found.kernel found.lock found.ipis found.tlb_flush found.sched_yield
        found.clocksource found.module next_slot responses.count responses.cycles responses.hist));
    all.extend(structure!("area_slot" Slot:));
    all
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
