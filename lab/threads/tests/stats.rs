// SPDX-License-Identifier: MIT OR Apache-2.0
//! `core/locks/stats.h`: its counts are right, and it costs nothing where it is off.

mod common;

use common::{build, changed_locks, check, locks_dir, scratch};
use std::path::Path;
use std::process::Command;
use unspin_threads::locks::{Lock, LOCKS};

fn play(locks: &Path, of: &str) -> Result<(), String> {
    check(&mut Command::new(build(locks, "stats", of, &[])))
}

#[test]
fn counts_are_what_was_played() {
    play(&locks_dir(), "played").unwrap_or_else(|said| panic!("{said}"));
}

#[test]
fn wrong_counts_are_caught() {
    let mutants = [
        (
            "if (UNSPIN_LOCK_STATS_GET(stats->held))",
            "if (!UNSPIN_LOCK_STATS_GET(stats->held))",
            "one stall",
        ),
        (
            "exchange_explicit(&stats->stalled, version + 1,",
            "exchange_explicit(&stats->stalled, 0ul,",
            "one stall",
        ),
        ("UNSPIN_LOCK_STATS_STALL_US 1u", "UNSPIN_LOCK_STATS_STALL_US 0u", "1 us is no stall"),
        (
            "if (unspin_lock_stats_look(self, now) || ",
            "if (unspin_lock_stats_look(self, now), ",
            "was away",
        ),
        ("if (!asked || asked >= mine)", "if (!asked || asked == mine)", "2 asked after 1"),
        ("? &slot->off :", "? &slot->running :", "of one that ran"),
        (
            "UNSPIN_LOCK_STATS_GET(slot->back) ? &slot->after : &slot->running",
            "&slot->running",
            "ran",
        ),
        ("self->others_off = 1;", "self->others_off = 9;", "up to 0.4"),
        ("(10 * after + self->others_off - 1)", "(10 * after)", "up to 0.4"),
    ];
    for (index, (what, by, says)) in mutants.into_iter().enumerate() {
        let name = format!("stats-wrong-{index}");
        let locks = changed_locks(&name, "stats.h", what, by);
        // The comma that takes a condition away has no effect, and a compiler says so.
        let text = std::fs::read_to_string(locks.join("stats.h")).unwrap();
        let quiet = format!("#pragma GCC diagnostic ignored \"-Wunused-value\"\n{text}");
        std::fs::write(locks.join("stats.h"), quiet).unwrap();
        let said =
            play(&locks, &format!("wrong-{index}-program")).expect_err(&format!("{by:?} passed"));
        assert!(said.contains(says), "{by:?} for {what:?}: {said}");
    }
}

/// The machine code of the bench's client under that lock.
fn code(lock: &Lock, locks: &Path, variant: &str, flags: &[&str]) -> Vec<u8> {
    let object = scratch().join(format!("cost-{}-{variant}.o", lock.name));
    let mut cc = Command::new("cc");
    // No debugging information, no file names: only what runs.
    cc.args(["-std=gnu11", "-O2", "-g0", "-c", "-pthread", "-I"]).arg(locks).args(flags);
    cc.arg(format!("-DLOCK_HEADER=\"{}\"", lock.header));
    cc.arg(format!("-DLOCK(op)=unspin_{}_##op", lock.name));
    if lock.node {
        cc.arg("-DWITH_NODE");
    }
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench-locks/c/bench.c");
    cc.arg("-DBENCH=bench").arg(client).arg("-o").arg(&object);
    check(&mut cc).unwrap_or_else(|said| panic!("{} {variant}: {said}", lock.name));
    let text = object.with_extension("text");
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["-O", "binary"]).arg(&object).arg(&text);
    check(&mut objcopy).unwrap_or_else(|said| panic!("{} {variant}: {said}", lock.name));
    std::fs::read(text).unwrap()
}

#[test]
fn counting_costs_nothing_where_it_is_off() {
    let hook = "#ifdef UNSPIN_LOCK_STATS\n#include \"stats.h\"\n#endif\n";
    let without = changed_locks("stats-without", "env.h", hook, "");
    std::fs::remove_file(without.join("stats.h")).unwrap();
    for lock in LOCKS {
        let off = code(lock, &locks_dir(), "off", &[]);
        assert!(!off.is_empty());
        assert!(off == code(lock, &without, "without", &[]), "{}", lock.name);
        let on = code(lock, &locks_dir(), "on", &["-DUNSPIN_LOCK_STATS"]);
        assert!(off != on, "{}: UNSPIN_LOCK_STATS changes nothing", lock.name);
    }
}
