// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules of single locks, and of the environment of a Linux program, each shown by one program
//! (`programs/alone.c`, `programs/held.c`, `programs/slice.c`, `programs/linux_env.c`), and headers that break them.

mod common;

use common::{build, changed_locks, check, i386, locks_dir, scratch, TIME64};
use std::path::Path;
use std::process::Command;

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
    (
        "alone",
        "lease.h",
        "if (wish & UNSPIN_LEASE_WANTED_ASLEEP)",
        "if (wish == UNSPIN_LEASE_WANTED_ASLEEP)",
        "the release of an heir wakes no thread",
    ),
    ("held", "lease.h", "nap_ns *= 2;", "nap_ns *= 1;", "wake up again and again"),
    ("held", "lease.h", " &&\n\t\t\t    ((after ^ both) & 0xffff)", "", "beside one that gives up"),
    ("slice", "slice_linux.h", "area->request = 1;", "(void)0;", "does not ask"),
    ("slice", "slice_linux.h", "!area->request && !area->granted", "1", "within an extension"),
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
        "slice_linux.h",
        "unknown = UNSPIN_SLICE_UNKNOWN;",
        "unknown = unspin_slice_now();",
        "because another one was refused",
    ),
    ("slice", "slice_linux.h", "(unspin_slice_refused || !", "(!", "asks again"),
    (
        "slice",
        "slice_linux.h",
        "unspin_slice_now() == UNSPIN_SLICE_NONE, 1",
        "unspin_slice_now() != UNSPIN_SLICE_EXTENDED, 1",
        "after another object",
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
        "rate <= last + last / 16 && last <= rate + rate / 16",
        "rate + last",
        "a step of the counter",
    ),
    (
        "linux_env",
        "env_linux.h",
        "syscall(UNSPIN_LOCK_LINUX_SYS_CLOCK, CLOCK_MONOTONIC, now)",
        "sizeof(now)",
        "the program's clock",
    ),
    (
        "linux_env",
        "env_linux.h",
        "(unsigned long)syscall(SYS_prctl,",
        "(unsigned long)prctl(",
        "the timer slack",
    ),
    ("linux_env", "env_linux.h", "if (key > 31)", "if (0)", "of many"),
];

fn finds_every_rule_kept(program: &str, of: &str, flags: &[&str]) {
    check(&mut Command::new(build(&locks_dir(), program, of, flags)))
        .unwrap_or_else(|said| panic!("{program} {of}: {said}"));
}

/// A kernel that extends time slices is played: no kernel of the lab is built with it.
#[test]
fn rules_are_kept() {
    for program in ["alone", "held", "slice"] {
        finds_every_rule_kept(program, "right", &[]);
    }
    for (of, flags) in
        [("private", &[][..]), ("shared", &["-DSHARED"]), ("filtered", &["-DFILTERED"])]
    {
        finds_every_rule_kept("linux_env", of, flags);
    }
}

/// A waiter of the program is woken by a holder in the library, and the other way round.
#[test]
fn a_program_and_its_library_may_use_the_same_locks() {
    let run = |of: &str, flags: &[&str]| {
        let library = [flags, &["-DLIBRARY", "-shared", "-fPIC"]].concat();
        let library = build(&locks_dir(), "objects", &format!("{of}.so"), &library);
        check(Command::new(build(&locks_dir(), "objects", of, flags)).arg(library))
    };
    run("apart", &[]).unwrap_or_else(|said| panic!("{said}"));
    let said = run("one-object", &["-DUNSPIN_LOCK_ONE_OBJECT"]).expect_err("counters of their own");
    assert!(said.contains("SIGALRM") || said.contains("signal: 14"), "{said}");
}

/// Files of one object that disagree would wait on different counters.
#[test]
fn all_files_of_an_object_have_counters_of_their_own_or_none() {
    let one = scratch().join("one-file.c");
    std::fs::write(&one, "#include \"pv_ticket.h\"\n").unwrap();
    let main = scratch().join("main-file.c");
    std::fs::write(&main, "#include \"pv_ticket.h\"\nint main(void) { return 0; }\n").unwrap();
    let object = |source: &Path, flags: &[&str]| {
        let object = source.with_extension(format!("{}.o", flags.len()));
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O2", "-c", "-I"]).arg(locks_dir()).args(flags);
        check(cc.arg(source).arg("-o").arg(&object)).expect("it compiles");
        object
    };
    let flag = &["-DUNSPIN_LOCK_ONE_OBJECT"][..];
    let shared = &["-DUNSPIN_LOCK_LINUX_FUTEX=0", "-O2"][..];
    let pairs = [
        (&[][..], &[][..]),
        (flag, flag),
        (flag, &[]),
        (&[], flag),
        (shared, shared),
        (shared, &[]),
        (&[], shared),
    ];
    for (first, second) in pairs {
        let mut link = Command::new("cc");
        link.arg(object(&one, first)).arg(object(&main, second));
        let linked = check(link.arg("-o").arg(scratch().join("of-two-files")));
        if first == second {
            linked.unwrap_or_else(|said| panic!("{first:?}: {said}"));
        } else {
            let said = linked.expect_err("they disagree");
            let setting = if [first, second].contains(&flag) { "one_object" } else { "futex_is_0" };
            assert!(said.contains(&format!("{setting}_in_all_files_or_none")), "{said}");
        }
    }
}

/// `-D` without a value means 1, with which locks would hang.
#[test]
fn a_wrong_kind_of_futex_does_not_compile() {
    let source = scratch().join("futex.c");
    std::fs::write(&source, "#include \"pv_ticket.h\"\n").unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-fsyntax-only", "-DUNSPIN_LOCK_LINUX_FUTEX", "-I"]).arg(locks_dir());
    let said = check(cc.arg(&source)).expect_err("refused");
    assert!(said.contains("define UNSPIN_LOCK_LINUX_FUTEX to 0"), "{said}");
}

/// A 32-bit program whose `time_t` has 64 bits: the kernel's futex takes a timespec of 32.
#[test]
fn naps_are_as_long_in_32_bit_programs() {
    let Some(i386) = i386() else { return };
    for (of, flags) in [("i386", &[][..]), ("i386-time64", &TIME64[..])] {
        finds_every_rule_kept("linux_env", of, &[&i386, flags].concat());
    }
}

/// The hint of the processors of arm64 servers.
#[test]
fn a_waiter_on_aarch64_stalls_its_pipeline() {
    let (source, object) = (scratch().join("pause.c"), scratch().join("pause.s"));
    let text = "#include \"env_cpu.h\"\nvoid wait_once(void) { unspin_lock_cpu_pause(); }\n";
    std::fs::write(&source, text).unwrap();
    let mut clang = Command::new("clang");
    clang.args(["--target=aarch64-linux-gnu", "-O2", "-S", "-I"]).arg(locks_dir());
    check(clang.arg(&source).arg("-o").arg(&object)).expect("it compiles");
    let code = std::fs::read_to_string(object).unwrap();
    assert!(code.lines().any(|line| line.trim() == "isb"), "{code}");
}

#[test]
fn broken_rules_are_found() {
    for (number, (program, header, what, by, says)) in MUTANTS.iter().enumerate() {
        let dir = changed_locks(&format!("locks-changed-{number}"), header, what, by);
        let program = build(&dir, program, &format!("mutant-{number}"), &[]);
        let said = check(&mut Command::new(program)).expect_err(&format!("{header} passed: {by}"));
        assert!(said.contains(says), "{header}: {said}");
    }
}
