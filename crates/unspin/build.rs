// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells the program which commit it is built from, if that is known, and whether what it was built
//! from differs from it (`-dirty`). Builds the library that `unspin run` preloads, and lists its locks.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What results depend on, beside the commit.
const SOURCES: &[&str] = &["Cargo.lock", "crates", "guest", "kmod", "locks", "policy", "uapi"];

fn main() {
    for source in SOURCES {
        println!("cargo:rerun-if-changed=../../{source}");
    }
    // In a worktree .git is no directory, and a path that does not exist would build this each time.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    if let Some(commit) = git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]) {
        println!("cargo:rustc-env=UNSPIN_COMMIT={commit}");
    }
    preloaded();
}

/// `locks/interpose` as one shared object, which the program carries.
fn preloaded() {
    let locks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../locks");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut cc = cc::Build::new().warnings(false).get_compiler().to_command();
    cc.args(["-std=gnu11", "-O2", "-g0", "-s", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]);
    cc.arg("-I").arg(&locks);
    for source in ["choice.c", "cond.c", "mutex.c", "spin.c"] {
        cc.arg(locks.join("interpose").join(source));
    }
    let status = cc.arg("-o").arg(out.join("libunspin-locks.so")).status();
    assert!(status.as_ref().is_ok_and(|s| s.success()), "{cc:?}: {status:?}");
    let list = std::fs::read_to_string(locks.join("interpose/list.h")).expect("list.h");
    let names = list.lines().filter_map(|l| l.trim().strip_prefix("X(")?.split(')').next());
    let names: Vec<&str> = names.collect();
    println!("cargo:rustc-env=UNSPIN_RUN_LOCKS={}", names.join(" "));
}

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_string())
}
