// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lock headers as user-space programs: `locks/test/stress.c`, natively and under
//! ThreadSanitizer, more threads than this computer has CPUs.

use std::path::{Path, PathBuf};
use std::process::Command;

const LOCKS: &[(&str, bool)] = &[("tas", false), ("ticket", false), ("mcs", true)];
const THREADS: &str = "8";
const ROUNDS: &str = "2000";

fn build(lock: &str, node: bool, variant: &str, header: &str, flags: &[&str]) -> PathBuf {
    let locks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../locks");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stress-{lock}-{variant}"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-DYIELDING"])
        .args(flags)
        .arg("-I")
        .arg(&locks)
        .arg(format!("-DLOCK_HEADER=\"{header}\""))
        .arg(format!("-DLOCK(op)={lock}_##op"));
    if node {
        cc.arg("-DWITH_NODE");
    }
    let status = cc.arg(locks.join("test/stress.c")).arg("-o").arg(&program).status();
    assert!(status.expect("a C compiler").success(), "{lock} {variant}");
    program
}

/// Whether the program is content; what it said otherwise.
fn stress(program: &Path) -> Result<(), String> {
    let output = Command::new(program).args([THREADS, ROUNDS]).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if output.status.success() {
        Ok(())
    } else {
        Err(said)
    }
}

#[test]
fn locks_exclude_natively() {
    for &(lock, node) in LOCKS {
        let program = build(lock, node, "native", &format!("{lock}.h"), &[]);
        stress(&program).unwrap_or_else(|said| panic!("{lock}: {said}"));
    }
}

#[test]
fn locks_order_what_they_protect() {
    for &(lock, node) in LOCKS {
        let program = build(lock, node, "tsan", &format!("{lock}.h"), &["-fsanitize=thread"]);
        stress(&program).unwrap_or_else(|said| panic!("{lock}: {said}"));
    }
}

/// The checker itself: a lock whose acquire or release is missing must not pass.
#[test]
fn weakened_locks_are_caught() {
    for &(lock, node) in LOCKS {
        for order in ["memory_order_acquire", "memory_order_release", "memory_order_acq_rel"] {
            let locks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../locks");
            let text = std::fs::read_to_string(locks.join(format!("{lock}.h"))).unwrap();
            // MCS passes the lock on in several ways; only without any order is it always wrong.
            if !text.contains(order) || lock == "mcs" && order != "memory_order_acquire" {
                continue;
            }
            let header =
                Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{lock}-{order}-weak.h"));
            let mut weak = text.replace(order, "memory_order_relaxed");
            if lock == "mcs" {
                weak = weak
                    .replace("memory_order_release", "memory_order_relaxed")
                    .replace("memory_order_acq_rel", "memory_order_relaxed");
            }
            std::fs::write(&header, weak).unwrap();
            let header = header.display().to_string();
            let program = build(lock, node, "weak", &header, &["-fsanitize=thread"]);
            let said = stress(&program).expect_err(&format!("{lock} without {order} passed"));
            assert!(said.contains("data race"), "{lock} without {order}: {said}");
        }
    }
}
