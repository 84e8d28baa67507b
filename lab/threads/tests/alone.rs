// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules of single locks, and of the environment of a Linux program, each shown by one program
//! (`programs/alone.c`, `programs/slice.c`, `programs/linux_env.c`), and headers that break them.

mod common;

use common::{check, locks_dir, programs_dir, scratch};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program of `programs` against the headers in `locks`; `of` tells apart its builds.
fn build(locks: &Path, name: &str, of: &str, flags: &[&str]) -> PathBuf {
    let out = scratch().join(format!("{name}-{of}"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags);
    cc.arg("-I").arg(locks).arg("-I").arg(programs_dir());
    cc.arg(programs_dir().join(name).with_extension("c")).arg("-o").arg(&out);
    check(&mut cc).unwrap_or_else(|said| panic!("{name} {of}: {said}"));
    out
}

/// A directory with the headers, one of them changed.
fn changed(number: usize, header: &str, what: &str, by: &str) -> PathBuf {
    let dir = scratch().join(format!("locks-changed-{number}"));
    std::fs::create_dir_all(&dir).unwrap();
    for entry in std::fs::read_dir(locks_dir()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        let Ok(mut text) = std::fs::read_to_string(&path) else { continue };
        if name == header {
            assert!(text.contains(what), "{header}: no {what:?}");
            text = text.replace(what, by);
        }
        std::fs::write(dir.join(name), text).unwrap();
    }
    dir
}

/// Program, header, the replaced text, its replacement, what the program says.
const MUTANTS: &[(&str, &str, &str, &str, &str)] = &[
    (
        "alone",
        "pv_queued.h",
        "!word && unspin_pv_queued_take(lock, 0)",
        "!(word & UNSPIN_PV_QUEUED_HELD) && unspin_pv_queued_take(lock, word)",
        "a newcomer takes the lock",
    ),
    ("alone", "pv_queued.h", "~UNSPIN_PV_QUEUED_HEAD_HALTS", "~0u", "is kicked"),
    (
        "alone",
        "preemptable.h",
        "!(both & UNSPIN_PREEMPTABLE_HELD) && !",
        "!",
        "preemptable: trylock",
    ),
    (
        "alone",
        "pv_preemptable.h",
        "!(both & UNSPIN_PV_PREEMPTABLE_HELD) && !",
        "!",
        "pv_preemptable: trylock",
    ),
    (
        "alone",
        "lease.h",
        "while (!unspin_lock_budget_spent(&lease));",
        "while (lease.since_ticks && false);",
        "a short nap",
    ),
    ("slice", "slice_linux.h", "\tarea->request = 1;", "", "does not ask"),
    ("slice", "slice_linux.h", "\tarea->request = 0;", "", "asks for ever"),
    ("slice", "slice_linux.h", "if (area->granted)", "if (area->granted && 0)", "keeps the CPU"),
    ("slice", "slice_linux.h", "if (area->granted)", "", "gives the CPU up"),
    ("slice", "slice_linux.h", "!(area->flags & UNSPIN_SLICE_AVAILABLE) ||", "", "not available"),
    (
        "slice",
        "slice_linux.h",
        "!unspin_slice_enable()",
        "(unspin_slice_enable(), 0)",
        "a kernel that refuses",
    ),
    (
        "slice",
        "lease.h",
        "\tunspin_lock_hold();\n\treturn true;",
        "\treturn true;",
        "after trylock",
    ),
    (
        "linux_env",
        "env_linux.h",
        "if (rate > UNSPIN_LOCK_LINUX_TICKS_PER_US_MAX)\n\t\treturn 0;",
        "",
        "a step of the counter",
    ),
    ("linux_env", "env_linux.h", "UNSPIN_LOCK_LINUX_FUTEX && key > 31", "(void)key, 0", "of many"),
];

#[test]
fn locks_keep_their_rules_with_one_thread() {
    check(&mut Command::new(build(&locks_dir(), "alone", "right", &[]))).expect("every rule");
}

/// A kernel that extends time slices is played: no kernel of the lab is built with it.
#[test]
fn a_holder_asks_for_a_longer_slice_where_there_is_one() {
    check(&mut Command::new(build(&locks_dir(), "slice", "right", &[]))).expect("every rule");
}

#[test]
fn a_linux_program_gets_its_rate_its_naps_and_its_wake_ups() {
    for (of, flags) in [("private", &[][..]), ("shared", &["-DSHARED"][..])] {
        check(&mut Command::new(build(&locks_dir(), "linux_env", of, flags)))
            .unwrap_or_else(|said| panic!("{of}: {said}"));
    }
}

/// A 32-bit program whose `time_t` has 64 bits: the kernel's futex takes a timespec of 32.
#[test]
fn naps_are_as_long_in_32_bit_programs() {
    let headers = "/usr/include/x86_64-linux-gnu";
    if !Path::new(headers).join("gnu/stubs-32.h").exists() {
        println!("SKIPPED: locks in 32-bit programs: no libc6-dev-i386 on this computer");
        return;
    }
    let i386 = ["-m32", "-static", "-idirafter", headers];
    let time64 = ["-D_FILE_OFFSET_BITS=64", "-D_TIME_BITS=64"];
    for (of, flags) in [("i386", &[][..]), ("i386-time64", &time64[..])] {
        let program = build(&locks_dir(), "linux_env", of, &[&i386, flags].concat());
        check(&mut Command::new(program)).unwrap_or_else(|said| panic!("{of}: {said}"));
    }
}

/// The hint of the processors of arm64 servers.
#[test]
fn a_waiter_on_aarch64_stalls_its_pipeline() {
    let object = scratch().join("pause.s");
    let mut clang = Command::new("clang");
    clang.args(["--target=aarch64-linux-gnu", "-O2", "-S", "-x", "c", "-", "-o"]).arg(&object);
    clang.stdin(std::process::Stdio::piped());
    let mut child = clang.spawn().expect("clang");
    let text = format!(
        "#include \"{}\"\nvoid wait_once(void) {{ unspin_lock_cpu_pause(); }}\n",
        locks_dir().join("env_cpu.h").display()
    );
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let code = std::fs::read_to_string(object).unwrap();
    assert!(code.lines().any(|line| line.trim() == "isb"), "{code}");
}

#[test]
fn broken_rules_are_found() {
    for (number, (program, header, what, by, says)) in MUTANTS.iter().enumerate() {
        let dir = changed(number, header, what, by);
        let program = build(&dir, program, &format!("mutant-{number}"), &[]);
        let said = check(&mut Command::new(program)).expect_err(&format!("{header} passed: {by}"));
        assert!(said.contains(says), "{header}: {said}");
    }
}
